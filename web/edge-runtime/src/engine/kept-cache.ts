/** What an engine's cache holds of a text, as numbers that can be kept, and such numbers put back. */
import { EngineError } from "../errors.js";
import type { OrtEngine } from "./ort-engine.js";

/** The first tokens of a text, with the model's keys and values of them: float32[heads, tokens, headDim], layer by layer. */
export interface KeptCache {
  readonly ids: readonly number[];
  readonly values: Float32Array<ArrayBuffer>;
}

/** What the cache holds of a text with these ids. */
export function keptCache(engine: OrtEngine, ids: readonly number[]): KeptCache {
  const count = engine.commonPrefix(ids);
  const rows = rowsOf(engine, count);
  const values = new Float32Array(rows.reduce((sum, row) => sum + row.length, 0));
  rows.forEach((row, at) => {
    values.set(row, at * row.length);
  });
  return { ids: ids.slice(0, count), values };
}

/** Puts what `keptCache` gave in place of all that was run; throws EngineError for another size. */
export function restoreCache(engine: OrtEngine, { ids, values }: KeptCache): void {
  const { names, shape } = engine.cache;
  const size = ids.length * shape.headDim;
  const expected = names.length * shape.kvHeads * size;
  if (values.length !== expected) throw new EngineError("cache", `${expected} numbers`, values.length);
  engine.refill(ids);
  engine.cache.reserve(ids.length, 0);
  rowsOf(engine, ids.length).forEach((row, at) => {
    row.set(values.subarray(at * size, (at + 1) * size));
  });
}

/** The numbers of the first tokens of each head, where they lie. */
function rowsOf({ cache }: OrtEngine, count: number): Float32Array[] {
  const { kvHeads, headDim } = cache.shape;
  return cache.tensors.flatMap((tensor) =>
    Array.from({ length: kvHeads }, (_, head) => {
      const from = head * cache.capacity * headDim;
      return (tensor.data as Float32Array).subarray(from, from + count * headDim);
    }),
  );
}
