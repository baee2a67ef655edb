/** Rows of logits: float32[rows, vocab]. */
import { EngineError } from "../errors.js";

export class Logits {
  constructor(
    private readonly _data: Float32Array,
    private readonly _vocab: number,
  ) {}

  /** The logits of a row, in place. */
  row(row: number): Float32Array {
    return this._data.subarray(row * this._vocab, (row + 1) * this._vocab);
  }

  /** Id of a row's largest logit, the lowest id on ties, without the banned ids. */
  argmax(row: number, banned?: ReadonlySet<number>): number {
    const values = this.row(row);
    let best = -1;
    let top = -Infinity;
    for (let id = 0; id < values.length; id++) {
      const value = values[id] ?? NaN;
      // Also true for NaN, which must not be skipped.
      if (!(value <= top) && !banned?.has(id)) {
        if (Number.isNaN(value)) throw notNumbers();
        top = value;
        best = id;
      }
    }
    if (best < 0) throw notNumbers();
    return best;
  }

  /** Natural logarithm of a token's probability. */
  logProb(row: number, id: number): number {
    return (this.row(row)[id] ?? NaN) - logSum(this.row(row));
  }
}

/** Natural logarithm of the sum of the exponentials of finite values; throws EngineError for others. */
export function logSum(values: Float32Array): number {
  let top = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) throw notNumbers();
    if (value > top) top = value;
  }
  let sum = 0;
  for (const value of values) sum += Math.exp(value - top);
  return top + Math.log(sum);
}

function notNumbers(): EngineError {
  return new EngineError("logits", "finite values", "others", "Use another variant");
}
