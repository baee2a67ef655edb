/** Conversations against Python, and sessions as bytes. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type ChatMessage, type Edge, EdgeModel, EdgeSession, SessionFileError, UsageError } from "../dist/index.js";
import { BUNDLE, EDGE, idsOf } from "./edge-vectors.js";
import { hex, readJson } from "./vectors.js";

const edge = await EdgeModel.open(BUNDLE, { variant: "fp32", threads: 1 });
after(() => edge.close());

test("conversations have Python's tokens, texts and dropped turns", async () => {
  let dropped = 0;
  for (const { system, reserve, max_tokens, turns, messages } of EDGE.conversations) {
    const session = new EdgeSession(edge, { system: system ?? undefined, reserve });
    for (const turn of turns) {
      const payload = turn.payload === null ? null : hex(turn.payload);
      const answer = session.ask(turn.question, { maxTokens: max_tokens ?? undefined, payload });
      assert.deepEqual(await idsOf(answer), turn.ids, turn.question);
      assert.deepEqual([answer.dropped, answer.source], [turn.dropped, turn.source]);
      dropped += answer.dropped;
    }
    assert.deepEqual(session.messages, messages);
  }
  assert.ok(EDGE.conversations.length >= 4 && dropped > 1);
});

test("only new tokens run; a clone goes its own way", async () => {
  const session = new EdgeSession(edge, { system: "Answer in one sentence." });
  const first = session.ask("What does the word river mean?", { maxTokens: 12 });
  await idsOf(first);
  const held = await edge.countTokens(session.messages);
  const clone = session.clone();
  const second = session.ask("And a lamp?", { maxTokens: 12 });
  await idsOf(second);
  const { reused, promptTokens } = await second.stats;
  // The template's beginning of an answer is no part of what follows it.
  assert.ok(reused > held - 8 && reused < promptTokens, `${reused} of ${held}`);
  assert.equal(clone.messages.length, 3);
  await idsOf(clone.ask("Is it long?", { maxTokens: 4 }));
  assert.equal(session.messages.length, 5);
  assert.equal(session.messages[3]?.content, "And a lamp?");
});

test("an answer that is left joins as far as it was written; one at a time", async () => {
  const session = new EdgeSession(edge);
  const answer = session.ask("Present Djibouti to me.");
  for await (const token of answer) {
    if (token.position < 2) continue;
    await assert.rejects(idsOf(session.ask("Another?")), UsageError);
    break;
  }
  assert.deepEqual(session.messages, [
    { role: "user", content: "Present Djibouti to me." },
    { role: "assistant", content: answer.tokens.map(({ text }) => text).join("") },
  ]);
  const control = new AbortController();
  control.abort();
  await assert.rejects(idsOf(session.ask("Never?", { signal: control.signal })), { name: "AbortError" });
  assert.equal(session.messages.length, 2);
});

test("a session goes on from its bytes", async () => {
  const session = new EdgeSession(edge, { system: "You explain words." });
  await idsOf(session.ask("What does the word choir mean?", { maxTokens: 20 }));
  const data = await session.save();
  const wanted = await idsOf(session.clone().ask("And a frost?", { maxTokens: 20 }));
  const loaded = await EdgeSession.load(data, edge);
  assert.deepEqual(loaded.messages, session.messages);
  assert.equal(loaded.private, false);
  assert.deepEqual(await idsOf(loaded.ask("And a frost?", { maxTokens: 20 })), wanted);
  session.private = true;
  assert.equal(session.clone().private, true);
  assert.equal((await EdgeSession.load(await session.save(), edge)).private, true);
  assert.deepEqual((await EdgeSession.load(await new EdgeSession(edge).save(), edge)).messages, []);
});

test("other bytes are no session", async () => {
  const bytes = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
  const good = { format: "inverse speculation session 2", private: false, messages: [["user", "x"]] };
  assert.equal((await EdgeSession.load(bytes(good), edge)).messages.length, 1);
  for (const other of [
    ...["", "PNG", "[".repeat(100_000), "null", "7", "[]", '{"messages": Infinity}', " ".repeat((16 << 20) + 1)],
    ...[{ format: "another" }, { private: 1 }, { messages: undefined }, { messages: "x" }, { messages: ["ab"] }],
    ...[[["king", "x"]], [["user", 1]], [["user", "x", "y"]], [{ role: "user" }]].map((messages) => ({ messages })),
  ]) {
    const data = bytes(typeof other === "string" ? other : { ...good, ...other });
    await assert.rejects(EdgeSession.load(data, edge), SessionFileError, JSON.stringify(other).slice(0, 60));
  }
  await assert.rejects(EdgeSession.load(Uint8Array.of(0xff), edge), SessionFileError);
  const nested = bytes(`{"format": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`);
  await assert.rejects(EdgeSession.load(nested, edge), SessionFileError);
});

test("a long history is not read whole", async () => {
  let read = 0;
  const countTokens = (prompt: ChatMessage[]) => {
    read += prompt.length;
    return edge.countTokens(prompt);
  };
  const counting: Edge = Object.create(edge, { countTokens: { value: countTokens } });
  const messages = Array.from({ length: 15_000 }, (_, turn): ChatMessage => {
    return { role: turn % 2 ? "assistant" : "user", content: `${turn} is it` };
  });
  const prompt = await new EdgeSession(counting, { messages }).prompt("Why?");
  assert.ok(read < 4_000, `${read}`);
  const room = edge.info.context - 128;
  assert.ok((await edge.countTokens(prompt.messages)) <= room);
  const more = [...messages.slice(2 * prompt.dropped - 2), ...prompt.messages.slice(-1)];
  assert.ok((await edge.countTokens(more)) > room);
});

test("doubt has its limit, as the bundle states it", async () => {
  const limit = edge.info.notSureFrom;
  assert.ok(limit !== null && limit > 0 && limit < 1);
  const { questions } = readJson<Recorded>("web/demo/payloads.json");
  const found = new Set<boolean | null>();
  for (const { prompt, payloads } of questions.slice(0, 3)) {
    for (const { data } of payloads) {
      const answer = edge.fill(Buffer.from(data, "base64"), { prompt, maxTokens: 1 });
      for await (const _ of answer);
      const { doubt, notSure } = await answer.stats;
      assert.equal(notSure, doubt !== null && doubt >= limit);
      found.add(notSure);
    }
  }
  assert.deepEqual(found, new Set([true, false]));
  const alone = edge.fill(null, { prompt: "What is a river?", maxTokens: 1 });
  for await (const _ of alone);
  assert.equal((await alone.stats).notSure, null);
});

interface Recorded {
  questions: { prompt: string; payloads: { data: string }[] }[];
}
