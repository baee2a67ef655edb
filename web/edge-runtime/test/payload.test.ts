/** Payloads: every vector of the format, and what is refused. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { decode, doubt, EdgeError, peek, type Shared } from "../dist/index.js";
import { Sha256 } from "../dist/sha256.js";
import { anchorsOf, CONTRACTS, DOCUMENT, held, hex, nameOf, readJson, ToyTokens, type Vector } from "./vectors.js";

const tokens = new ToyTokens();
const rows = DOCUMENT.vectors;

async function sharedOf(row: Vector): Promise<Shared> {
  const contract = CONTRACTS[row.contract];
  assert.ok(contract);
  const below = rows.find((each) => each.name === row.base);
  const base = below && { data: hex(below.payload), anchors: await decode(hex(below.payload), await sharedOf(below)) };
  return { contract, promptIds: row.prompt_ids ?? undefined, tokens, base };
}

test("contracts have Python's identity", () => {
  for (const [name, contract] of Object.entries(CONTRACTS)) {
    assert.equal(contract.identity, DOCUMENT.contracts[name]?.identity);
  }
});

for (const row of rows.filter((each) => each.anchors)) {
  test(`decodes ${row.name}`, async () => {
    const { anchors } = row;
    assert.ok(anchors);
    const { positions, ids, canvas, length, ...extras } = anchors;
    assert.deepEqual(held(await decode(hex(row.payload), await sharedOf(row))), { positions, ids, canvas, length });
    const { total_steps, ...rest } = extras;
    const header = await peek(hex(row.payload));
    assert.deepEqual(header.extras, { ...rest, totalSteps: total_steps });
    assert.equal(header.codec, row.codec);
  });
}

for (const row of rows.filter((each) => each.error)) {
  test(`refuses ${row.name}`, async () => {
    const shared = await sharedOf(row);
    await assert.rejects(decode(hex(row.payload), shared), (error) => {
      assert.ok(error instanceof EdgeError && error.expected && error.found);
      assert.equal(nameOf(error), row.error);
      return true;
    });
  });
}

test("a changed byte anywhere is noticed", async () => {
  const row = rows.find((each) => each.name === "compact: a sentence");
  assert.ok(row?.anchors);
  const data = hex(row.payload);
  const shared = await sharedOf(row);
  for (let at = 1; at < data.length; at++) {
    const changed = data.slice();
    changed[at] = (changed[at] ?? 0) ^ 4;
    await assert.rejects(decode(changed, shared), EdgeError);
  }
  const contract = CONTRACTS[row.contract];
  assert.ok(contract);
  assert.deepEqual(held(await decode(data, shared)), held(anchorsOf(row.anchors, contract)));
});

test("doubt is Python's", () => {
  const cases = readJson<{ levels: number[]; doubt: number | null }[]>("tests/vectors/doubt.json");
  for (const each of cases) {
    const found = doubt(each.levels);
    assert.equal(found && Math.round(found * 1e6) / 1e6, each.doubt);
  }
  assert.ok(cases.length > 3);
});

test("SHA-256 is that of Node.js, in one part and in several", () => {
  for (let size = 0; size < 300; size++) {
    const data = randomBytes(size);
    const hash = new Sha256().update(data.subarray(0, size >> 1)).update(data.subarray(size >> 1));
    assert.equal(Buffer.from(hash.digest()).toString("hex"), createHash("sha256").update(data).digest("hex"));
  }
});
