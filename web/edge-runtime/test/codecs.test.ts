/** Decoders against Python: sealed payloads with random bodies, predictive payloads of a model of integers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Contract } from "../dist/index.js";
import { AnchorSet, decode, PayloadError, peek } from "../dist/index.js";
import { FenwickTree } from "../dist/payload/codecs/fenwick-tree.js";
import { EDGE } from "./edge-vectors.js";
import { MixPredictor } from "./mix-predictor.js";
import { anchorsOf, CONTRACTS, held, hex, nameOf, ToyTokens } from "./vectors.js";

const toy = CONTRACTS.toy as Contract;

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
