/** A model with float32 activations as a `Predictor`: log probabilities of ordinary tokens and of the end. */
import type { Contract } from "../contract.js";
import type { Predictor } from "../payload/shared.js";
import type { Engine } from "./engine.js";
import { logSum } from "./logits.js";

const MAX_CHUNK = 512;

export class EnginePredictor implements Predictor {
  private readonly _values: Float64Array;
  passes = 0;
  /** Prompt tokens that the first pass found in the cache; -1 before it. */
  reused = -1;

  /** @param identity the fingerprint of the model's variant. */
  constructor(
    private readonly _engine: Engine,
    readonly promptIds: readonly number[],
    private readonly _contract: Contract,
    readonly identity: Uint8Array,
    private readonly _signal: AbortSignal | undefined,
  ) {
    this._values = new Float64Array(_contract.vocabSize + 1);
  }

  async row(text: readonly number[]): Promise<Float64Array> {
    const tokens = [...this.promptIds, ...text];
    let at = Math.min(this._engine.commonPrefix(tokens), tokens.length - 1);
    this._engine.rewind(at);
    if (this.reused < 0) this.reused = at;
    for (;;) {
      const end = Math.min(at + MAX_CHUNK, tokens.length);
      const isLast = end === tokens.length;
      const logits = await this._engine.append(tokens.slice(at, end), isLast ? [end - at - 1] : [], this._signal);
      this.passes++;
      if (isLast) return this._normalised(logits.row(0));
      at = end;
    }
  }

  private _normalised(logits: Float32Array): Float64Array {
    const { _contract: contract, _values: values } = this;
    const total = logSum(logits);
    for (let id = 0; id < contract.vocabSize; id++) values[id] = (logits[id] ?? NaN) - total;
    for (const id of contract.reserved) values[id] = -Infinity;
    values[contract.vocabSize] = logSum(Float32Array.from(contract.eosIds, (id) => logits[id] ?? NaN)) - total;
    return values;
  }
}
