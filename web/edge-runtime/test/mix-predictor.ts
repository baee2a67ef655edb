/** A model without weights: rows from a 64-bit mix of everything before them, as `predictive_expectations.py` has it. */
import type { Predictor } from "../dist/index.js";

const MASK = (1n << 64n) - 1n;
const SCALES = [0.05, 1, 4];
const BUMPS = [0, 4, 12];

export class MixPredictor implements Predictor {
  readonly identity = Uint8Array.from({ length: 32 }, (_, at) => at);

  constructor(
    private readonly vocabSize: number,
    readonly promptIds: readonly number[],
  ) {}

  async row(text: readonly number[]): Promise<Float64Array> {
    let state = 0xcbf29ce484222325n;
    for (const number of [...this.promptIds, -1, ...text]) {
      state = ((state ^ BigInt(number + 2)) * 0x100000001b3n) & MASK;
    }
    const draws = Array.from({ length: this.vocabSize + 4 }, () => {
      state ^= state >> 12n;
      state = (state ^ (state << 25n)) & MASK;
      state ^= state >> 27n;
      return ((state * 0x2545f4914f6cdd1dn) & MASK) >> 11n;
    });
    const [scale = 0, bump = 0] = draws.slice(0, 2).map((draw) => Number(draw % 3n));
    const place = Number((draws[2] ?? 0n) % BigInt(this.vocabSize));
    const row = Float64Array.from(draws.slice(3), (draw) => (Number(draw) / 2 ** 53) * (SCALES[scale] ?? 0) * 2);
    row[place] = (row[place] ?? 0) + (BUMPS[bump] ?? 0);
    const top = Math.max(...row);
    const total = top + Math.log(row.reduce((sum, value) => sum + Math.exp(value - top), 0));
    return row.map((value) => value - total);
  }
}
