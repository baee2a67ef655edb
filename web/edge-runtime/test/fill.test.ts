/** Answers of the shipped bundle in Node.js: Python's tokens, and what a reader of the API relies on. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { loadBundle } from "../dist/bundle/bundle.js";
import { type Answer, EdgeModel, FingerprintError, type Token, UsageError } from "../dist/index.js";
import { BUNDLE, EDGE, type Fill, idsOf, tokensOf } from "./edge-vectors.js";
import { hex } from "./vectors.js";

const edge = await EdgeModel.open(BUNDLE, { variant: "fp32", threads: 1 });
after(() => edge.close());

function fill(model: EdgeModel, row: Fill, prompt: string | undefined = row.prompt): Answer<Token> {
  return model.fill(hex(row.payload), { prompt, maxTokens: EDGE.max_tokens });
}

test("answers in float32 are Python's, token for token", async () => {
  let furthest = 0;
  for (const row of EDGE.fp32) {
    const answer = fill(edge, row);
    const tokens = await tokensOf(answer);
    const stats = await answer.stats;
    assert.deepEqual(
      tokens.map((token) => token.id),
      row.ids,
      row.payload,
    );
    assert.equal(tokens.map((token) => token.source.charAt(0)).join(""), row.sources);
    assert.equal(tokens.map((token) => token.text).join("") + stats.tail, row.text);
    assert.equal(stats.stop, row.stop);
    row.logprobs.forEach((expected, at) => {
      const found = tokens[at]?.logprob ?? NaN;
      assert.equal(Number.isNaN(found), expected === null);
      if (expected !== null) furthest = Math.max(furthest, Math.abs(found - expected));
    });
  }
  console.log(
    `fp32: ${EDGE.fp32.length} of ${EDGE.fp32.length} equal, log probabilities within ${furthest.toFixed(4)}`,
  );
  assert.ok(EDGE.fp32.length > 90 && furthest < 0.01);
});

test("answers in int8: the agreement with Python is reported", async () => {
  const model = await EdgeModel.open(BUNDLE, { variant: "int8", threads: 1 });
  let equal = 0;
  for (const row of EDGE.int8) {
    if (`${await idsOf(fill(model, row))}` === `${row.ids}`) equal++;
  }
  await model.close();
  console.log(`int8: ${equal} of ${EDGE.int8.length} answers equal`);
  assert.ok(equal >= 0.8 * EDGE.int8.length);
});

test("a payload may carry its prompt, and refuses another", async () => {
  const row = EDGE.fp32.find((each) => hex(each.payload)[0] === 0x55) as Fill; // compact, needs prompt, optional fields
  assert.deepEqual(await idsOf(fill(edge, row, undefined)), row.ids);
  await assert.rejects(tokensOf(fill(edge, row, "Another question?")), UsageError);
  await assert.rejects(tokensOf(edge.fill(null)), UsageError);
});

test("another prompt and another variant are no model of a predictive payload", async () => {
  const row = EDGE.fp32.find((each) => hex(each.payload)[0] === 0x5c) as Fill;
  await assert.rejects(tokensOf(edge.fill(hex(row.payload), { prompt: `${row.prompt}?` })), FingerprintError);
  const other = await EdgeModel.open(BUNDLE, { variant: "int4", threads: 1 });
  await assert.rejects(tokensOf(fill(other, row)), FingerprintError);
  await other.close();
});

test("an answer ends with its signal, or is left, and the model stays usable", async () => {
  const row = EDGE.fp32.find((each) => each.ids.length > 12 && !each.sources.includes("a")) as Fill;
  const control = new AbortController();
  const seen: number[] = [];
  const answer = edge.fill(hex(row.payload), { prompt: row.prompt, signal: control.signal });
  await assert.rejects(
    async () => {
      for await (const token of answer) if (seen.push(token.id) === 4) control.abort();
    },
    { name: "AbortError" },
  );
  assert.deepEqual(seen, row.ids.slice(0, 4));
  await assert.rejects(answer.stats, { name: "AbortError" });
  const left = fill(edge, row);
  for await (const token of left) if (token.position === 2) break;
  await assert.rejects(left.stats, UsageError);
  const again = fill(edge, row);
  assert.equal((await tokensOf(again)).length, row.ids.length);
  assert.ok((await again.stats).reused > 0);
  await assert.rejects(tokensOf(again), UsageError);
});

test("options: limits, echo, scores", async () => {
  const row = EDGE.fp32[2] as Fill;
  const options = { prompt: row.prompt, maxTokens: 3, scoreAnchors: false, echoPrompt: true };
  const tokens = await tokensOf(edge.fill(hex(row.payload), options));
  const prompt = tokens.filter((token) => token.source === "prompt");
  assert.equal(prompt.at(-1)?.position, -1);
  assert.equal(tokens.length, prompt.length + 3);
  assert.ok(tokens.filter((token) => token.source === "anchor").every((token) => Number.isNaN(token.logprob)));
  await assert.rejects(tokensOf(edge.fill(null, { prompt: "x", maxTokens: 0 })), UsageError);
  await assert.rejects(tokensOf(edge.fill(null, { prompt: "the ".repeat(400) })), { name: "ContextError" });
});

test("what cannot be opened is refused by its name", async () => {
  await assert.rejects(EdgeModel.open("/nowhere"), { name: "BundleMissingError" });
  await assert.rejects(EdgeModel.open(BUNDLE, { variant: "fp8" }), { name: "BundleVariantError" });
  await assert.rejects(EdgeModel.open(BUNDLE, { provider: "webgpu" }), { name: "EngineError" });
  await assert.rejects(EdgeModel.open("http://example.com/bundle"), UsageError);
  const closed = await EdgeModel.open(BUNDLE, { threads: 1 });
  await closed.close();
  await closed.close();
  await assert.rejects(tokensOf(closed.fill(null, { prompt: "x" })), UsageError);
});

test("files of strangers are bounded, and a graph reads no file that the manifest does not list", async () => {
  const [stated, graph] = ["bundle.json", "fp32/model.onnx"].map((name) => readFileSync(BUNDLE + name, "latin1"));
  const refused = async (name: string, manifest = stated, model = graph) => {
    const read = async (path: string) =>
      path.endsWith(".json")
        ? readFileSync(BUNDLE + path)
        : Buffer.from(path.endsWith(".onnx") ? `${model}` : "", "latin1");
    const files = { where: "", read, manifest: async () => Buffer.from(`${manifest}`) };
    await assert.rejects(loadBundle(files, "fp32", undefined), { name }, manifest?.slice(0, 300));
  };
  for (const field of ["num_hidden_layers", "num_key_value_heads", "head_dim", "vocab_size"]) {
    await refused("BundleSchemaError", stated?.replace(new RegExp(`"${field}": \\d+`), `"${field}": ${10 ** 7}`));
  }
  await refused("BundleSchemaError", stated?.replace(/"size": \d+/, `"size": ${2 ** 50}`));
  await refused("BundleSchemaError", "[".repeat(100_000) + "]".repeat(100_000));
  await refused("BundleFileError", stated?.replace("fp32/model.onnx.data", "fp32/other.data"));
  await refused("BundleFileError", stated, graph?.replace("model.onnx.data", "../../../../etc"));
  await refused("BundleFileError", stated, graph?.replace("location\x12", "location\x10"));
});
