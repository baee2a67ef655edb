// The page's code: asks for the trace of a question and shows its events, one column a way of answering.
// Responsible for what is on the screen. Not responsible for anything that is computed.

const COLUMNS = {
  "edge-aware": {
    title: "Edge-aware",
    what: "Sends what the cloud predicts and the device would not write by itself.",
  },
  paper: {
    title: "The paper's selection",
    what: "Sends every token that the cloud has committed so far.",
  },
  given: { title: "Your payload", what: "The device's answer around the bytes that you gave." },
  alone: { title: "The device alone", what: "Receives nothing." },
};
const FACTS = "facts"; // the name under which they are kept for a visit without a network
const MAX_FILE = 1 << 20; // bytes of a dropped file; no payload has so many
const DOUBT = "one minus the cloud's mean probability of the tokens it has sent";
const ALONE = 128; // most tokens of the device's own answer
const PAUSES = { step: 420, payload: 350, sent: 350, token: 24, reasons: 500 }; // ms, at speed "to read along"

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

let views = new Map();
let recorded = [];
let running = null; // AbortController of the question being answered
let facts = {}; // what the service said of itself, now or on the last visit
let device = null; // the device's model, once it is in this tab
let broken = false; // it could not be loaded

// ---------------------------------------------------------------- one column

class Column {
  constructor(name, plan) {
    const node = $("column").content.firstElementChild.cloneNode(true);
    this.name = name;
    this.plan = plan;
    this.node = node;
    this.part = (selector) => node.querySelector(selector);
    this.steps = [];
    this.sent = new Map();
    this.words = [];
    this.queue = [];
    this.wake = null;
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
      this.masked(plan.canvas);
      this.part(".scrub").addEventListener("input", (event) => this.draw(this.steps[event.target.value - 1]));
    }
    this.part(".text").classList.add("running");
  }

  figure(name, value) {
    if (!this.figures[name]) {
      const [box, label, figure] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      label.textContent = name;
      box.append(label, figure);
      this.part(".figures").append(box);
      this.figures[name] = figure;
    }
    this.figures[name].textContent = value;
    return this.figures[name];
  }

  masked(count) {
    this.part(".canvas").replaceChildren(...Array.from({ length: count }, () => cell("masked", "")));
    this.part(".progress").textContent = `${count} masked positions`;
  }

  draw(step) {
    const cells = step.tokens.map(([text, sure, when], position) => {
      const sent = step === this.steps.at(-1) && this.plan.aligned && this.sent.has(position);
      const kind = sent ? "sent" : when ? "committed" : "predicted";
      const made = cell(kind, text);
      if (when === step.step && !sent) made.classList.add("fresh");
      made.style.setProperty("--sure", sure);
      made.title = when
        ? `position ${position}, committed in step ${when}`
        : `position ${position}, predicted with probability ${sure.toFixed(2)}`;
      return made;
    });
    const rest = Array.from({ length: Math.max(0, step.canvas - cells.length) }, () => cell("masked", ""));
    this.part(".canvas").replaceChildren(...cells, ...rest);
    this.part(".progress").textContent =
      `step ${step.step} of ${step.total_steps} · ${step.committed} of ${step.canvas} committed`;
    this.figure("cloud steps", step.step);
    const scrub = this.part(".scrub");
    scrub.max = this.steps.length;
    scrub.value = this.steps.indexOf(step) + 1;
    scrub.hidden = this.steps.length < 2;
  }

  show(name, data) {
    this[`on_${name}`]?.(data);
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
      const figure = this.figure("doubt", `${data.doubt.toFixed(2)}${data.doubt >= limit ? ", not sure" : ""}`);
      figure.title = limit < 1 ? `${DOUBT}; from ${limit} on an answer is better not shown` : DOUBT;
    }
    this.part(".anchors").replaceChildren(
      ...data.sent.map(([position, text]) => {
        this.sent.set(position, text);
        const item = document.createElement("li");
        const token = document.createElement("b");
        token.textContent = visible(text);
        item.dataset.position = position;
        item.title = `position ${position}`;
        item.append(token, document.createElement("small"));
        return item;
      }),
    );
    if (!data.sent.length) this.part(".anchors").append(paragraph("none", "nothing: the device needs no help"));
    if (this.steps.length) this.draw(this.steps.at(-1));
  }

  on_reasons(data) {
    let same = 0;
    for (const [position, text, equal, margin] of data.reasons) {
      const item = this.part(`.anchors li[data-position="${position}"]`);
      if (!item) continue;
      const reason = document.createElement(equal ? "small" : "s");
      same += equal;
      if (equal) {
        const unsure = margin < this.plan.guard;
        reason.textContent = unsure ? "unsure" : "same";
        item.classList.toggle("same", !unsure);
        item.title += unsure
          ? `: the device would write the same, by a margin of ${margin} only`
          : ": the device would have written the same";
      } else {
        reason.textContent = visible(text);
        item.title += `: the device would have written ${JSON.stringify(text)}`;
      }
      item.lastElementChild.replaceWith(reason);
    }
    const other = data.reasons.length - same;
    this.part(".why").textContent = `${other} of ${data.reasons.length} are not what the device would have written`;
  }

  on_token(data) {
    if (!data.text) return;
    this.words.push({ text: data.text, anchor: data.anchor });
    const token = document.createElement("span");
    token.className = data.anchor ? "anchor" : "fill";
    token.textContent = data.text;
    token.title = `position ${data.position}, from the ${data.anchor ? "cloud" : "device"}`;
    this.part(".text").append(token);
  }

  on_end(data) {
    this.part(".text").classList.remove("running");
    this.part(".passes").textContent = `${data.tokens} tokens in ${data.passes} passes`;
  }

  on_error(data) {
    const fault = this.part(".fault");
    fault.textContent = `Expected ${data.expected}, found ${data.found}. ${data.remedy}`;
    fault.hidden = false;
    this.part(".text").classList.remove("running");
  }

  // Events wait here, so that each can be read before the next one.
  push(name, data) {
    this.queue.push([name, data]);
    this.wake?.();
  }

  async play(signal) {
    for (;;) {
      while (!this.queue.length) {
        if (signal.aborted) return;
        await new Promise((resume) => (this.wake = resume));
      }
      if (signal.aborted) return; // what has not been shown by then is not shown
      const [name, data] = this.queue.shift();
      if (name === "close") return;
      this.show(name, data);
      const pause = (PAUSES[name] ?? 0) * (still.matches ? 0 : Number($("speed").value));
      if (pause && !signal.aborted) await new Promise((resume) => setTimeout(resume, pause));
    }
  }
}

function cell(kind, text) {
  const made = document.createElement("i");
  made.className = `cell ${kind}`;
  made.textContent = visible(text);
  return made;
}

function paragraph(kind, text) {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  return made;
}

function visible(text) {
  return text.replaceAll("\n", "⏎").replace(/^ (?=.)/, "").replaceAll(" ", "\u00a0");
}

// ------------------------------------------------- words that the first column's text has not

function mark(reference, column) {
  const split = (view) => view.words.map((word) => word.text).join("").match(/\S+|\s+/g) ?? [];
  const [one, other] = [split(reference), split(column)];
  const kept = common(one, other);
  const text = column.part(".text");
  const spans = [...text.childNodes];
  // Marks go around characters, since a word may be of several tokens.
  let at = 0;
  const marked = new Set();
  other.forEach((word, index) => {
    if (!kept.has(index) && /\S/.test(word)) for (let i = 0; i < word.length; i++) marked.add(at + i);
    at += word.length;
  });
  at = 0;
  for (const span of spans) {
    const parts = [];
    for (const character of span.textContent) {
      const wrong = marked.has(at);
      at += character.length;
      if (!parts.length || parts.at(-1).wrong !== wrong) parts.push({ wrong, text: "" });
      parts.at(-1).text += character;
    }
    span.replaceChildren(
      ...parts.map((part) => {
        if (!part.wrong) return document.createTextNode(part.text);
        const made = document.createElement("u");
        made.textContent = part.text;
        return made;
      }),
    );
  }
}

// Indices of the second list's items in a longest common subsequence.
function common(one, other) {
  const rows = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      rows[i][j] = one[i] === other[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < one.length && j < other.length; )
    if (one[i] === other[j]) (kept.add(j), i++, j++);
    else if (rows[i + 1][j] >= rows[i][j + 1]) i++;
    else j++;
  return kept;
}

// ---------------------------------------------------------------- the service

function headers() {
  const key = $("key").value.trim();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function refusal(response) {
  try {
    const { error } = await response.json();
    return `Expected ${error.expected}, found ${error.found}. ${error.remedy}`;
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

async function* again() {
  yield* recorded;
}

// ---------------------------------------------------------------- one question

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// answered: by the service; its payloads go to the model in this tab, where there is one.
async function run(source, { record = true, answered = true } = {}) {
  running?.abort();
  const control = (running = new AbortController());
  const { signal } = control;
  const busy = (on) => {
    $("go").disabled = on;
    $("stop").hidden = !on;
    $("replay").hidden = on || !recorded.length;
    document.body.dataset.state = on ? "running" : "idle";
  };
  busy(true);
  say(record && answered ? "Asking …" : "");
  if (record) recorded = [];
  // Unless another question has taken its place.
  const stopped = () => running === control && say("Stopped.");
  const began = performance.now();
  let players = [];
  const writing = [];
  let alone = false; // the service cannot be reached, and the device can
  try {
    let finished = false;
    if (record && inTab() && !device) await openDevice();
    const writes = record && answered && device && inTab();
    if (!answered && record && !device) throw new Error("Expected the device's model in this tab, found none.");
    const prompt = $("question").value;
    const write = async (column, hex, canvas) => {
      for await (const [name, data] of written(column, prompt, hex ? bytesOf(hex) : null, canvas, signal)) {
        recorded.push([name, data]);
        views.get(column)?.push(name, data);
      }
    };
    for await (const [name, data] of await source(signal, writes)) {
      if (record) recorded.push([name, data]);
      if (writes && name === "payload") writing.push(write(data.column, data.hex));
      if (name === "plan") {
        views = new Map(data.columns.map((column) => [column, new Column(column, data)]));
        $("columns").replaceChildren(...[...views.values()].map((view) => view.node));
        players = [...views.values()].map((view) => view.play(signal));
        say("");
        if (writes) writing.push(write("alone", null, data.canvas));
      } else if (data.column) views.get(data.column)?.push(name, data);
      else if (name === "error") throw new Error(`Expected ${data.expected}, found ${data.found}. ${data.remedy}`);
      finished ||= name === "done";
    }
    if (!finished) throw new Error("The service ended the answer before its end.");
    const seconds = (performance.now() - began) / 1000;
    await Promise.all(writing);
    for (const view of views.values()) view.push("close");
    await Promise.all(players);
    if (signal.aborted) return stopped();
    const [first, ...others] = views.values();
    for (const other of others) mark(first, other);
    if (record && answered) say(`The service took ${seconds.toFixed(1)} s for all three answers.`);
    else if (record) say("Nothing was sent: this tab's model wrote all of it.");
  } catch (error) {
    for (const view of views.values()) view.push("close");
    if (error.name === "AbortError" || signal.aborted) stopped();
    else if (error instanceof Unreachable && inTab()) alone = true;
    else say(error instanceof TypeError ? "The service cannot be reached." : error.message, true);
  } finally {
    if (running === control) {
      running = null;
      busy(false);
    }
  }
  if (alone) await run((signal) => own(null, signal), { answered: false });
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
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.title = text;
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
$("stop").addEventListener("click", () => {
  running?.abort();
  for (const view of views.values()) view.push("close");
});
$("replay").addEventListener("click", () => run(again, { record: false }));

function read(payload) {
  run((signal) => own(payload, signal), { answered: false });
}
$("read").addEventListener("click", () => {
  try {
    read(Uint8Array.from(atob($("pasted").value.trim()), (letter) => letter.charCodeAt(0)));
  } catch {
    say("Expected a payload in base64, found other characters. Paste it again.", true);
  }
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", async (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file && facts.device) read(new Uint8Array(await file.slice(0, MAX_FILE).arrayBuffer()));
});
$("key").addEventListener("change", greet);
greet();
