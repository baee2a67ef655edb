/** Tokenizer, chat template and text stream against Python. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BundleSchemaError } from "../dist/index.js";
import { ChatTemplate } from "../dist/text/chat-template.js";
import { TextStream } from "../dist/text/text-stream.js";
import { Tokenizer } from "../dist/text/tokenizer.js";
import { BUNDLE, EDGE } from "./edge-vectors.js";

const file = readFileSync(`${BUNDLE}tokenizer.json`, "utf8");
const tokenizer = new Tokenizer(JSON.parse(file));

test("texts have Python's ids", () => {
  for (const { text, ids } of EDGE.tokenizer.texts) assert.deepEqual(tokenizer.encode(text), ids, JSON.stringify(text));
  assert.ok(EDGE.tokenizer.texts.length > 100);
});

test("streams have Python's pieces", () => {
  for (const { ids, pieces, tail } of EDGE.tokenizer.streams) {
    const stream = new TextStream(tokenizer);
    assert.deepEqual(
      ids.map((id) => stream.push(id)),
      pieces,
    );
    assert.equal(stream.flush(), tail);
  }
  assert.ok(EDGE.tokenizer.streams.length > 30);
});

test("a long piece is not slow", () => {
  const started = performance.now();
  const ids = tokenizer.encode("the".repeat(20_000));
  assert.equal(
    ids.reduce((sum, id) => sum + tokenizer.tokenBytes(id).length, 0),
    60_000,
  );
  assert.ok(performance.now() - started < 20_000); // a quadratic algorithm takes minutes
});

test("an unsupported tokenizer is refused with the field that differs", () => {
  const changes: [RegExp, string][] = [
    [/"type":\s*"NFC"/, '"type":"NFKC"'],
    [/"behavior":\s*"Isolated"/, '"behavior":"Removed"'],
    [/"use_regex":\s*false/, '"use_regex":true'],
    [/"type":\s*"BPE"/, '"type":"WordPiece"'],
    [/"lstrip":\s*false/, '"lstrip":true'],
    [/"dropout":\s*null/, '"dropout":0.1'],
    [/"Regex":\s*"/, '"Regex":"('],
  ];
  for (const [before, after] of changes) {
    assert.match(file, before);
    const changed = JSON.parse(file.replace(before, after));
    assert.throws(() => new Tokenizer(changed), BundleSchemaError, `${before}`);
  }
  for (const broken of [null, {}, [], { model: 1 }]) assert.throws(() => new Tokenizer(broken), BundleSchemaError);
});

test("chat templates render as in Python, and broken ones are refused", () => {
  for (const { template, messages, text } of EDGE.chat) assert.equal(new ChatTemplate(template).render(messages), text);
  assert.ok(EDGE.chat.length > 4);
  const good = { default_system: null, system: ["", ""], user: ["", ""], assistant: ["", ""], generation: "" };
  new ChatTemplate(good);
  for (const [name, value] of Object.entries({ default_system: 3, user: [""], assistant: "", generation: null })) {
    assert.throws(() => new ChatTemplate({ ...good, [name]: value }), BundleSchemaError, name);
  }
  const other = [{ role: "tool", content: "x" }] as unknown as Parameters<ChatTemplate["render"]>[0];
  assert.throws(() => new ChatTemplate(good).render(other), { name: "UsageError" });
});
