// The page's code: asks for the trace of a question and shows its events, one column a way of answering.
// Responsible for what is on the screen. Not responsible for anything that is computed.

const COLUMNS = {
  "edge-aware": { title: "Edge-aware", what: "Sends what the cloud predicts and the device would not write by itself." },
  paper: { title: "The paper's selection", what: "Sends every token that the cloud has committed so far." },
  given: { title: "Your payload", what: "The device's answer around the bytes that you gave." },
  alone: { title: "The device alone", what: "Receives nothing." },
};
const FACTS = "facts"; // the name under which they are kept for a visit without a network
const MAX_FILE = 1 << 20; // bytes of a file; no payload has so many
const DOUBT = "one minus the cloud's mean probability of the tokens it has sent";
const ALONE = 128; // most tokens of the device's own answer
const PAUSES = { step: 420, payload: 350, sent: 350, token: 24, reasons: 500 }; // ms, at speed "to read along"

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

let views = new Map();
let running = null; // AbortController of the question being answered
let facts = {}; // what the service said of itself, now or on the last visit
let device = null; // the device's model, once it is in this tab
let broken = false; // it could not be loaded

// ---------------------------------------------------------------- one column

class Column {
  constructor(name, plan, signal) {
    const node = $("column").content.firstElementChild.cloneNode(true);
    Object.assign(this, { plan, node, signal });
    this.part = (selector) => node.querySelector(selector);
    this.steps = [];
    this.sent = new Map();
    this.shown = Promise.resolve();
    node.dataset.column = name;
    this.part("h2").textContent = COLUMNS[name]?.title ?? name;
    this.part(".what").textContent = COLUMNS[name]?.what ?? "";
    this.figures = {};
    for (const figure of ["bytes", "tokens sent", "cloud steps"]) this.figure(figure, name === "alone" ? 0 : "–");
    if (name === "given") {
      this.part(".cloud-part").remove();
    } else if (name === "alone") {
      // There is no cloud in this column: its place explains the others.
      for (const part of ["sent", "payload"]) this.part(`.${part}-part`).remove();
      this.part(".cloud-part").replaceWith($("legend").content.cloneNode(true));
    } else {
      this.part(".canvas").replaceChildren(...masked(plan.canvas));
      this.part(".progress").textContent = `${plan.canvas} masked positions`;
      this.part(".scrub").addEventListener("input", (event) => this.draw(this.steps[event.target.value - 1]));
    }
    this.part(".text").classList.add("running");
  }

  figure(name, value) {
    if (!this.figures[name]) {
      const box = element("div");
      box.append(element("dt", "", name), (this.figures[name] = element("dd")));
      this.part(".figures").append(box);
    }
    this.figures[name].textContent = value;
    return this.figures[name];
  }

  draw(step) {
    const cells = step.tokens.map(([text, sure, when], position) => {
      const sent = step === this.steps.at(-1) && this.plan.aligned && this.sent.has(position);
      const kind = sent ? "sent" : when ? "committed" : "predicted";
      const how = when ? `committed in step ${when}` : `predicted with probability ${sure.toFixed(2)}`;
      const made = cell(when === step.step && !sent ? `${kind} fresh` : kind, text, `position ${position}, ${how}`);
      made.style.setProperty("--sure", sure);
      return made;
    });
    this.part(".canvas").replaceChildren(...cells, ...masked(step.canvas - cells.length));
    this.part(".progress").textContent =
      `step ${step.step} of ${step.total_steps} · ${step.committed} of ${step.canvas} committed`;
    this.figure("cloud steps", step.step);
    const scrub = this.part(".scrub");
    scrub.max = this.steps.length;
    scrub.value = this.steps.indexOf(step) + 1;
    scrub.hidden = this.steps.length < 2;
  }

  on_step(data) {
    this.steps.push(data);
    this.draw(data);
  }

  on_payload(data) {
    this.figure("cloud steps", data.step);
    this.figure("tokens sent", data.anchors);
    this.figure("bytes", data.bytes);
    this.part(".size").textContent = `${data.bytes} bytes, header, doubt and check included`;
    this.part(".hex").textContent = data.hex.match(/../g).join(" ");
  }

  on_sent(data) {
    this.figure("tokens sent", data.sent.length);
    if (data.doubt !== null) {
      const limit = facts.not_sure_from ?? 1;
      const figure = this.figure("doubt", `${data.doubt.toFixed(2)}`);
      this.part(".unsure").hidden = data.doubt < limit;
      figure.title = limit < 1 ? `${DOUBT}; from ${limit} on an answer is better not shown` : DOUBT;
    }
    this.part(".anchors").replaceChildren(
      ...data.sent.map(([position, text]) => {
        this.sent.set(position, text);
        const item = element("li", "", "", `position ${position}`);
        item.dataset.position = position;
        item.append(element("b", "", visible(text)), element("small"));
        return item;
      }),
    );
    if (!data.sent.length) this.part(".anchors").append(element("p", "none", "nothing: the device needs no help"));
    if (this.steps.length) this.draw(this.steps.at(-1));
  }

  on_reasons(data) {
    let same = 0;
    for (const [position, text, equal, margin] of data.reasons) {
      const item = this.part(`.anchors li[data-position="${position}"]`);
      if (!item) continue;
      const unsure = margin < this.plan.guard;
      same += equal;
      item.classList.toggle("same", equal && !unsure);
      const word = !equal ? element("s", "", visible(text)) : element("small", "", unsure ? "unsure" : "same");
      item.lastElementChild.replaceWith(word);
      if (!equal) item.title += `: the device would have written ${JSON.stringify(text)}`;
      else if (!unsure) item.title += ": the device would have written the same";
      else item.title += `: the device would write the same, by a margin of ${margin} only`;
    }
    const other = data.reasons.length - same;
    this.part(".why").textContent = `${other} of ${data.reasons.length} are not what the device would have written`;
  }

  on_token(data) {
    if (!data.text) return;
    const title = `position ${data.position}, from the ${data.anchor ? "cloud" : "device"}`;
    this.part(".text").append(element("span", data.anchor ? "anchor" : "fill", data.text, title));
  }

  on_end(data) {
    this.part(".text").classList.remove("running");
    this.part(".passes").textContent = `${data.tokens} tokens in ${data.passes} passes`;
  }

  on_error(data) {
    const fault = this.part(".fault");
    fault.textContent = told(data);
    fault.hidden = false;
    this.part(".text").classList.remove("running");
  }

  // Shows an event once those before it have been there for as long as one needs to read them.
  push(name, data) {
    this.shown = this.shown.then(async () => {
      if (this.signal.aborted) return;
      this[`on_${name}`]?.(data);
      const pause = (PAUSES[name] ?? 0) * (still.matches ? 0 : Number($("speed").value));
      if (pause) await new Promise((resume) => setTimeout(resume, pause));
    });
  }
}

function element(tag, className = "", textContent = "", title = "") {
  return Object.assign(document.createElement(tag), { className, textContent, title });
}

const cell = (kind, text = "", title = "") => element("i", `cell ${kind}`, visible(text), title);

const masked = (count) => Array.from({ length: Math.max(0, count) }, () => cell("masked"));

function visible(text) {
  return text.replaceAll("\n", "⏎").replace(/^ (?=.)/, "").replaceAll(" ", "\u00a0");
}

// Marks the tokens of words that the first column's text does not have.
function mark(reference, column) {
  const words = (view) => view.part(".text").textContent.matchAll(/\S+/g);
  const known = new Set([...words(reference)].map(([word]) => word));
  let end = 0;
  const tokens = [...column.part(".text").children].map((span) => ({ span, end: (end += span.textContent.length) }));
  for (const { 0: word, index } of words(column)) {
    if (known.has(word)) continue;
    for (const token of tokens) {
      const begin = token.end - token.span.textContent.length;
      if (begin < index + word.length && token.end > index) token.span.classList.add("other");
    }
  }
}

// ---------------------------------------------------------------- the service

function headers() {
  const key = $("key").value.trim();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

const told = ({ expected, found, remedy }) => `Expected ${expected}, found ${found}. ${remedy}`;

async function refusal(response) {
  try {
    return told((await response.json()).error);
  } catch {
    return `The service answered ${response.status}.`;
  }
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      yield [fields.event, JSON.parse(fields.data)];
    }
  }
}

class Unreachable extends Error {}

async function live(signal, inTab) {
  const asked = fetch("v1/trace", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers() },
    body: JSON.stringify({
      prompt: $("question").value,
      fraction: Number($("fraction").value),
      ...(inTab && { device: false }),
    }),
    signal,
  });
  const response = await asked.catch((error) => {
    throw signal.aborted ? error : new Unreachable("The service cannot be reached.");
  });
  if (!response.ok) {
    if (response.status === 401) $("key-field").hidden = false;
    throw new Error(await refusal(response));
  }
  return eventsOf(response);
}

// ---------------------------------------------------------------- the model in this tab

const library = () => import("./device/js/device.js");
const inTab = () => Boolean(facts.device && !broken && $("here").checked);

async function openDevice() {
  try {
    const { open } = await library();
    const key = $("key").value.trim() || undefined;
    device = await open(facts.device, key, ({ loaded, total }) => {
      const [now, all] = [loaded, total].map((bytes) => (bytes / 1e6).toFixed(2));
      say(`The device's model, once: ${now} of ${all} MB`);
    });
    say("");
    const { id, variant, threads } = device.info;
    $("about").textContent =
      `The device's part is written in this tab: ${id} (${variant}) on ${threads} ` +
      `thread${threads > 1 ? "s" : ""}, from the payload's bytes. The model is kept for the next visit.`;
  } catch (error) {
    broken = true; // the service writes the device's part, as it does without this
    say(`No model in this tab: ${error.message}. The service writes the device's part.`, true);
  }
}

// The events of the device's part, as the service would send them; payload: null without one.
async function* written(column, prompt, payload, canvas, signal) {
  const answer = device.fill(payload, { prompt, signal, ...(payload ? {} : { maxTokens: canvas }) });
  const sent = [];
  try {
    for await (const { position, text, source } of answer) {
      if (source === "anchor") sent.push([position, text]);
      yield ["token", { column, position, text, anchor: source === "anchor" }];
    }
    const { tokens, passes, doubt } = await answer.stats;
    if (payload) yield ["sent", { column, sent, doubt }];
    yield ["end", { column, tokens, passes }];
  } catch (error) {
    const { expected, found, remedy } = error;
    if (expected === undefined) throw error;
    yield ["error", { column, expected, found, remedy }];
  }
}

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g), (byte) => parseInt(byte, 16));
const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// The trace of an answer without the service: to a payload that was given to the page, or to none.
async function* own(payload, signal) {
  const extras = payload && (await (await library()).peek(payload)).extras;
  const prompt = extras?.prompt ?? $("question").value;
  yield ["plan", { columns: payload ? ["given", "alone"] : ["alone"] }];
  if (payload) {
    const step = extras.totalSteps ? extras.step : "–";
    yield ["payload", { column: "given", step, anchors: "–", bytes: payload.length, hex: hexOf(payload) }];
    yield* written("given", prompt, payload, undefined, signal);
  }
  yield* written("alone", prompt, null, ALONE, signal);
  yield ["done", {}];
}

// ---------------------------------------------------------------- one question

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// Shows the events of a source; answered: by the service, whose payloads go to the model in this tab, if any.
async function run(source, answered = true) {
  running?.abort();
  const control = (running = new AbortController());
  const { signal } = control;
  busy(true);
  say(answered ? "Asking …" : "");
  const began = performance.now();
  const writing = [];
  let alone = false; // the service cannot be reached, and the device can
  try {
    if (inTab() && !device) await openDevice();
    const writes = answered && device && inTab();
    if (!answered && !device) throw new Error("Expected the device's model in this tab, found none.");
    const prompt = $("question").value;
    const write = async (column, hex, canvas) => {
      for await (const [name, data] of written(column, prompt, hex ? bytesOf(hex) : null, canvas, signal))
        views.get(column)?.push(name, data);
    };
    let finished = false;
    for await (const [name, data] of await source(signal, writes)) {
      if (writes && name === "payload") writing.push(write(data.column, data.hex));
      if (name === "plan") {
        views = new Map(data.columns.map((column) => [column, new Column(column, data, signal)]));
        $("columns").replaceChildren(...[...views.values()].map((view) => view.node));
        say("");
        if (writes) writing.push(write("alone", null, data.canvas));
      } else if (data.column) views.get(data.column)?.push(name, data);
      else if (name === "error") throw new Error(told(data));
      finished ||= name === "done";
    }
    if (!finished) throw new Error("The service ended the answer before its end.");
    const seconds = (performance.now() - began) / 1000;
    await Promise.all(writing);
    await Promise.all([...views.values()].map((view) => view.shown));
    signal.throwIfAborted();
    const [first, ...others] = views.values();
    for (const other of others) mark(first, other);
    if (answered) say(`The service took ${seconds.toFixed(1)} s for all three answers.`);
    else say("Nothing was sent: this tab's model wrote all of it.");
  } catch (error) {
    alone = !signal.aborted && error instanceof Unreachable && inTab();
    if (signal.aborted) running === control && say("Stopped."); // unless another question has taken its place
    else if (!alone) say(error instanceof TypeError ? "The service cannot be reached." : error.message, true);
  } finally {
    if (running === control) {
      running = null;
      busy(false);
    }
  }
  if (alone) await run((signal) => own(null, signal), false);
}

function busy(on) {
  $("go").disabled = on;
  $("stop").hidden = !on;
  document.body.dataset.state = on ? "running" : "idle";
}

// ---------------------------------------------------------------- the form

function offer() {
  const steps = new Set([0.05, 0.1, 0.15, 0.25, 0.5, 1].map((share) => Math.floor(share * facts.total_steps + 1e-9)));
  steps.add(facts.steps);
  $("fraction").replaceChildren(
    ...[...steps].filter((count) => count >= 1).sort((a, b) => a - b).map((count) => {
      const option = new Option(`at most ${count} of ${facts.total_steps}`, count / facts.total_steps);
      option.selected = count === facts.steps;
      return option;
    }),
  );
  $("examples").replaceChildren(
    ...facts.examples.map((text) => {
      const button = Object.assign(element("button", "", text, text), { type: "button" });
      button.addEventListener("click", () => {
        $("question").value = text;
        $("ask").requestSubmit();
      });
      return button;
    }),
  );
  if (!$("question").value && facts.examples.length) $("question").value = facts.examples[0];
  for (const name of ["here-field", "own"]) $(name).hidden = !facts.device;
  // Keeps the page's own files for a visit without a network; the model's are kept by the model.
  if (facts.device) navigator.serviceWorker?.register("sw.js").catch(() => {});
  if (facts.knows) $("knows").textContent = `Knows ${facts.knows}.`;
  $("about").textContent =
    `Model: ${facts.model}. The device's part runs on this service's machine too, from the payload's bytes, ` +
    "with the bundle that devices have.";
}

async function greet() {
  const response = await fetch("v1/page", { headers: headers() }).catch(() => null);
  if (!response) {
    facts = JSON.parse(localStorage.getItem(FACTS) ?? "{}");
    if (!facts.device) return say("The service cannot be reached.", true);
    offer();
    return say("The service cannot be reached: the device in this tab answers alone.");
  }
  if (response.status === 401) {
    $("key-field").hidden = false;
    return say("This service asks for a key.");
  }
  if (!response.ok) return say(await refusal(response), true);
  facts = await response.json();
  localStorage.setItem(FACTS, JSON.stringify(facts));
  offer();
  say("");
}

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!$("fraction").options.length) await greet();
  if ($("fraction").options.length) run(live);
});
// Enter asks, Shift and Enter begin a line; an input method's Enter only ends its word.
$("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!$("go").disabled) $("ask").requestSubmit();
});
$("stop").addEventListener("click", () => running?.abort());
$("payload").addEventListener("change", async () => {
  const [file] = $("payload").files;
  if (!file) return;
  const payload = new Uint8Array(await file.slice(0, MAX_FILE).arrayBuffer());
  $("payload").value = ""; // the same file may be chosen again
  run((signal) => own(payload, signal), false);
});
$("key").addEventListener("change", greet);
greet();
