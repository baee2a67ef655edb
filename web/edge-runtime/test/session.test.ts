/** Conversations against Python, and sessions as bytes. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { EdgeModel, EdgeSession, SessionFileError, type Token, type TurnAnswer, UsageError } from "../dist/index.js";
import { BUNDLE, EDGE } from "./edge-vectors.js";
import { hex, readJson } from "./vectors.js";

let edge: EdgeModel;
before(async () => {
  edge = await EdgeModel.open(BUNDLE, { variant: "fp32", threads: 1 });
});
after(() => edge.close());

async function idsOf(answer: TurnAnswer<Token>): Promise<number[]> {
  const ids: number[] = [];
  for await (const token of answer) ids.push(token.id);
  return ids;
}

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

test("a session goes on from its bytes, with its cache, and for its model only", async () => {
  const session = new EdgeSession(edge, { system: "You explain words." });
  await idsOf(session.ask("What does the word choir mean?", { maxTokens: 20 }));
  const data = await session.save();
  const wanted = await idsOf(session.clone().ask("And a frost?", { maxTokens: 20 }));
  const other = await EdgeModel.open(BUNDLE, { variant: "fp32", threads: 1 });
  const loaded = await EdgeSession.load(data, other);
  assert.deepEqual(loaded.messages, session.messages);
  assert.equal(loaded.private, false);
  session.private = true;
  assert.equal(session.clone().private, true);
  assert.equal((await EdgeSession.load(await session.save(), other)).private, true);
  const answer = loaded.ask("And a frost?", { maxTokens: 20 });
  assert.deepEqual(await idsOf(answer), wanted);
  assert.ok((await answer.stats).reused > 20);
  await other.close();

  const refused = (bytes: Uint8Array, on: EdgeModel, found: RegExp) =>
    assert.rejects(
      EdgeSession.load(bytes, on),
      (error) => error instanceof SessionFileError && found.test(error.message),
    );
  const int8 = await EdgeModel.open(BUNDLE, { variant: "int8", threads: 1 });
  await refused(data, int8, /weights/);
  await int8.close();
  const broken = data.slice();
  broken[40] = (broken[40] ?? 0) ^ 1;
  await refused(broken, edge, /damaged/);
  await refused(data.slice(0, 60), edge, /damaged/);
  await refused(new Uint8Array(100), edge, /other bytes/);
  // Sealed, and yet none: less of the cache, no JSON, other roles.
  const sealed = (body: Uint8Array) => Buffer.concat([body, createHash("sha256").update(body).digest()]);
  await refused(sealed(data.subarray(0, -36)), edge, /cache/);
  await refused(sealed(data.subarray(0, 30)), edge, /messages and tokens/);
  await refused(
    sealed(Buffer.from(Buffer.from(data).toString("latin1").replace('"user"', '"tool"'), "latin1").subarray(0, -32)),
    edge,
    /other messages/,
  );
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
