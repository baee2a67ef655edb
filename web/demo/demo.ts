/**
 * The demo: recorded payloads, and the texts that this tab's model makes of them. Responsible for what is on the screen.
 * Not responsible for anything that is computed.
 */
import { type Answer, type Edge, EdgeWorker, type FillStats, peek, type Token } from "inversespec-edge-runtime";

interface Question {
  readonly prompt: string;
  readonly total_steps: number;
  readonly payloads: readonly { readonly percent: number; readonly steps: number; readonly data: string }[];
}

function $<T extends HTMLElement>(selector: string): T {
  const found = document.querySelector<T>(selector);
  if (!found) throw new Error(`expected ${selector} in the page, found none`);
  return found;
}

const question = $<HTMLSelectElement>("#question");
const steps = $<HTMLInputElement>("#steps");

/** One answer on the screen. */
class Column {
  private readonly part: (selector: string) => HTMLElement;

  constructor(name: string) {
    this.part = (selector) => $(`[data-column=${name}] ${selector}`);
  }

  show(payload: Uint8Array | null, figures: string): void {
    this.part(".hex").textContent = payload && [...payload].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    this.part(".figures").textContent = figures;
    this.part(".text").replaceChildren();
  }

  async write(answer: Answer<Token>, figures: string): Promise<FillStats> {
    for await (const token of answer) {
      const span = document.createElement("span");
      span.className = token.source === "anchor" ? "cloud" : "edge";
      span.textContent = token.text;
      span.title = `position ${token.position}, from the ${token.source === "anchor" ? "cloud" : "device"}`;
      this.part(".text").append(span);
    }
    const stats = await answer.stats;
    const milliseconds = Math.round(1000 * (stats.prefillSeconds + stats.fillSeconds));
    this.part(".figures").textContent =
      `${figures}${stats.tokens} tokens in ${stats.passes} passes, ${milliseconds} ms` +
      (stats.doubt === null ? "" : ` · the cloud's doubt ${stats.doubt.toFixed(2)}`);
    if (stats.notSure) this.part(".text").prepend("The cloud is not sure: ");
    return stats;
  }
}

const columns = { cloud: new Column("cloud"), alone: new Column("alone") };
let edge: Edge | undefined;
let running: AbortController | undefined;
let aloneFor: string | undefined;

/** Writes both answers; one that is being written is left. */
async function write(payload: Uint8Array | null, given: string | undefined): Promise<void> {
  if (!edge) return;
  running?.abort();
  const control = new AbortController();
  running = control;
  const { signal } = control;
  document.body.dataset.state = "running";
  say("");
  try {
    const figures = payload ? `${payload.length} bytes · ` : "nothing sent · ";
    columns.cloud.show(payload, figures);
    const prompt = given ?? (payload && (await peek(payload)).extras.prompt) ?? undefined;
    await columns.cloud.write(edge.fill(payload, { prompt, signal }), figures);
    if (prompt !== undefined && prompt !== aloneFor) {
      aloneFor = undefined;
      columns.alone.show(null, "nothing sent · ");
      await columns.alone.write(edge.fill(null, { prompt, signal, maxTokens: 128 }), "nothing sent · ");
      aloneFor = prompt;
    }
  } catch (error) {
    if (!signal.aborted) say(error instanceof Error ? error.message : String(error));
  }
  if (running === control) document.body.dataset.state = "idle";
  network();
}

function say(fault: string): void {
  $("#fault").textContent = fault;
  $("#fault").hidden = fault === "";
}

function bytes(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** The files that this visit has asked for, with their bytes on the network, as the browser counts them. */
const fetched = new Map<string, number>();
new BroadcastChannel("network").onmessage = ({ data }: MessageEvent<[string, number][]>) => {
  for (const [name, size] of data) fetched.set(name, size);
  network();
};
function network(): void {
  for (const entry of performance.getEntriesByType("resource") as PerformanceResourceTiming[]) {
    fetched.set(entry.name, entry.transferSize);
  }
  const rows = [...fetched].map(([name, size]) => {
    const row = document.createElement("tr");
    const count = size ? size.toLocaleString("en") : "kept in this browser";
    for (const text of [new URL(name, location.href).pathname.split("/").slice(-3).join("/"), count]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  $<HTMLTableElement>("#network table").tBodies[0]?.replaceChildren(...rows);
}

function chosen(): { readonly asked: Question; readonly payload: Uint8Array | null } | null {
  const asked = questions[question.selectedIndex];
  if (!asked) return null;
  const recorded = asked.payloads[Number(steps.value) - 1];
  steps.max = `${asked.payloads.length}`;
  $("#share").textContent = recorded
    ? `${recorded.steps} of ${asked.total_steps}, ${recorded.percent}%`
    : "none: the device alone";
  return { asked, payload: recorded ? bytes(recorded.data) : null };
}

function update(): void {
  const found = chosen();
  if (found) void write(found.payload, found.asked.prompt);
}

async function open(): Promise<Edge> {
  const worker = new Worker(new URL("./edge.worker.js", import.meta.url), { type: "module" });
  const progress = $<HTMLProgressElement>("#progress");
  progress.hidden = false;
  const opened = await EdgeWorker.open(worker, "bundle/", {
    variant: "fp32",
    onProgress: ({ loaded, total }) => {
      progress.value = loaded / total;
      $("#model").textContent =
        `The model, once: ${Math.round(loaded / 1e4) / 100} of ${Math.round(total / 1e4) / 100} MB`;
    },
  });
  progress.hidden = true;
  const { id, variant, threads } = opened.info;
  $("#model").textContent =
    `The model ${id} (${variant}) runs in this tab on ${threads} thread${threads > 1 ? "s" : ""}, and is kept for the next visit.`;
  return opened;
}

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", async (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const file = event.dataTransfer?.files[0];
  if (file) void write(new Uint8Array(await file.arrayBuffer()), ownQuestion());
});
$("#read").addEventListener("click", () => {
  try {
    void write(bytes($<HTMLTextAreaElement>("#pasted").value.trim()), ownQuestion());
  } catch {
    say("Expected a payload in base64, found other characters. Paste it again.");
  }
});
const ownQuestion = () => $<HTMLTextAreaElement>("#own-question").value || undefined;

question.addEventListener("change", update);
steps.addEventListener("input", update);

document.body.dataset.state = "opening";
const recorded = (await (await fetch("payloads.json")).json()) as { questions: readonly Question[] };
const { questions } = recorded;
question.replaceChildren(...questions.map(({ prompt }) => new Option(prompt.split("\n")[0] ?? "")));
// The question with most to send shows most.
const size = (index: number) => questions[index]?.payloads.at(-1)?.data.length ?? 0;
question.selectedIndex = questions.reduce((best, _, index) => (size(index) > size(best) ? index : best), 0);
steps.max = `${questions[0]?.payloads.length ?? 0}`;
steps.value = "2";
chosen();
navigator.serviceWorker?.register("sw.js").catch(() => {}); // without it the page works, but not offline
try {
  edge = await open();
  update();
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  document.body.dataset.state = "failed";
}
