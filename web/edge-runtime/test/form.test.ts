/** Forms have the identity that Python gives them, and decisions are read. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EdgeError, Form } from "../dist/index.js";
import { hex, readJson } from "./vectors.js";

interface Read {
  form: number;
  text: string;
  data: string;
  probabilities: Record<string, number[]>;
  error: string;
}
const { forms, decisions, broken, refused } = readJson<{
  forms: { schema: string; identity: string; titles: string[]; value_of_last: object }[];
  decisions: Read[];
  broken: Read[];
  refused: string[];
}>("tests/vectors/decision_vectors.json");
const formOf = (row: Read) => Form.of(forms[row.form]?.schema ?? "");

test("forms have Python's identity and make its values", () => {
  for (const { schema, identity, value_of_last } of forms) {
    const form = Form.of(schema);
    assert.equal(form.identity, identity);
    assert.deepEqual(form.value(form.slots.map((slot) => slot.options.length - 1)), value_of_last);
  }
});

test("decisions are read as Python reads them, and broken ones refused", () => {
  for (const row of decisions) {
    const found = formOf(row).read(new Uint8Array(hex(row.data)), row.text);
    assert.deepEqual([...found.keys()].map(String), Object.keys(row.probabilities));
    for (const [at, read] of found) {
      read.forEach((share, option) => {
        assert.ok(Math.abs(share - (row.probabilities[at]?.[option] ?? 2)) < 1e-9);
      });
    }
    assert.throws(() => formOf(row).read(new Uint8Array(hex(row.data)), `${row.text}.`), EdgeError);
  }
  for (const row of broken)
    assert.throws(() => formOf(row).read(new Uint8Array(hex(row.data)), row.text), {
      name: new RegExp(row.error, "i"),
    });
});

test("what is no form is refused", () => {
  for (const schema of refused.filter((each) => !each.includes("minLength"))) {
    assert.throws(() => Form.of(schema), EdgeError);
  }
});
