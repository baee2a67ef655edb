/** Decoders against Python: zstd frames, sealed payloads with random bodies, predictive payloads of a model of integers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import type { Contract } from "../dist/index.js";
import { AnchorSet, decode, PayloadError, peek } from "../dist/index.js";
import { gzipDecompress, zstdDecompress } from "../dist/payload/codecs/compression.js";
import { FenwickTree } from "../dist/payload/codecs/fenwick-tree.js";
import { EDGE } from "./edge-vectors.js";
import { MixPredictor } from "./mix-predictor.js";
import { anchorsOf, CONTRACTS, held, hex, nameOf, ToyTokens } from "./vectors.js";

const toy = CONTRACTS.toy as Contract;

test("zstd frames have Python's content, and the broken ones are refused", () => {
  let refused = 0;
  for (const row of EDGE.frames) {
    const data = Uint8Array.from(hex(row.frame));
    if (row.content === null) {
      assert.throws(() => zstdDecompress(data, 1 << 17, "frame"), PayloadError, row.frame);
      refused++;
    } else {
      assert.equal(Buffer.from(zstdDecompress(data, 1 << 17, "frame")).toString("hex"), row.content);
    }
  }
  assert.ok(EDGE.frames.length > 100 && refused > 40, `${EDGE.frames.length} frames, ${refused} refused`);
});

test("exactly one whole gzip stream is read", async () => {
  const text = Buffer.from("the river ".repeat(40));
  const data = new Uint8Array(gzipSync(text));
  assert.deepEqual(Buffer.from(await gzipDecompress(data, 400, "x")), text);
  await assert.rejects(gzipDecompress(data, 399, "x"), { name: "OversizedPayloadError" });
  const bomb = new Uint8Array(gzipSync(Buffer.alloc(1 << 24)));
  await assert.rejects(gzipDecompress(bomb, 1 << 15, "x"), { name: "OversizedPayloadError" });
  const end = data.length - 8;
  const broken = [
    data.slice(0, -1),
    Uint8Array.of(...data, 0),
    Uint8Array.of(...data, ...data),
    Uint8Array.of(...data.slice(0, end), 0, ...data.slice(end)),
    Uint8Array.of(...data.slice(0, end - 1), ...data.slice(end)),
    data.slice(0, 12),
    new Uint8Array(30),
  ];
  for (const each of broken) await assert.rejects(gzipDecompress(each, 1000, "x"), { name: "MalformedPayloadError" });
});

test("a Fenwick tree sums and finds as a list does", () => {
  const tree = new FenwickTree();
  const list: number[] = [];
  for (let step = 0; step < 300; step++) {
    const number = (step * 7919) % 13;
    tree.add(number);
    list.push(number);
    const at = (step * 31) % list.length;
    tree.set(at, step % 5);
    list[at] = step % 5;
    assert.equal(
      tree.before(at),
      list.slice(0, at).reduce((sum, each) => sum + each, 0),
    );
    assert.equal(
      tree.total,
      list.reduce((sum, each) => sum + each, 0),
    );
    for (let target = 0; target < tree.total; target += 17) {
      const index = tree.find(target);
      assert.ok(tree.before(index) <= target && target < tree.before(index + 1));
    }
  }
});

test("sealed payloads with random bodies decode and fail as in Python", async () => {
  const tokens = new ToyTokens();
  let decoded = 0;
  for (const row of EDGE.sealed) {
    const contract = CONTRACTS[row.contract];
    assert.ok(contract);
    const data = hex(row.payload);
    try {
      // A base is a compact payload of its own, without a prompt.
      const base = row.base ? { data: hex(row.base), anchors: await decode(hex(row.base), { contract }) } : undefined;
      const found = await decode(data, { contract, promptIds: row.prompt_ids ?? undefined, tokens, base });
      assert.ok(row.anchors, `${row.payload}: expected ${row.error}`);
      assert.deepEqual(held(found), held(anchorsOf(row.anchors, contract)));
      assert.deepEqual((await peek(data)).extras.confidence, row.anchors.confidence);
      decoded++;
    } catch (error) {
      if (!(error instanceof PayloadError)) throw error;
      assert.equal(nameOf(error), row.error, `${row.payload}: ${error.message}`);
    }
  }
  assert.ok(decoded > 50 && EDGE.sealed.length - decoded > 50, `${decoded} decoded`);
});

test("every payload of the model of integers decodes as in Python", async () => {
  const [refused, deltas] = [[] as string[], [] as string[]];
  for (const row of EDGE.predictive) {
    const predictor = new MixPredictor(toy.vocabSize, row.prompt_ids);
    const { base } = row;
    const below = base && {
      data: hex(base.payload),
      anchors: new AnchorSet(base.positions, base.ids, base.canvas, toy, base.length),
    };
    try {
      const found = await decode(hex(row.payload), { contract: toy, base: below ?? undefined, predictor });
      assert.deepEqual(held(found), row.anchors);
      if (below) deltas.push(row.payload);
    } catch (error) {
      if (!(error instanceof PayloadError)) throw error;
      assert.equal(nameOf(error), row.error, error.message);
      refused.push(row.payload);
    }
  }
  assert.ok(refused.length > 10 && deltas.length > 20, `${refused.length} refused, ${deltas.length} deltas`);
});
