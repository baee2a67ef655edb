/**
 * A model with a KV cache: runs known tokens, rewinds the cache. Responsible for the cached ids and for argument checks; a
 * subclass runs the model.
 */
import { ContextError, EngineError } from "../errors.js";
import type { Logits } from "./logits.js";

export abstract class Engine {
  private readonly _ids: Int32Array;

  /** Number of tokens in the cache. */
  length = 0;

  constructor(
    readonly context: number,
    readonly vocab: number,
  ) {
    this._ids = new Int32Array(context);
  }

  /**
   * Runs a chunk of known tokens in one pass, after the cached ones.
   *
   * @param rows indices into the chunk to compute logits for, ascending; row i predicts the token after chunk[i].
   * @returns float32[rows.length, vocab], valid until the next call.
   * @throws ContextError where the chunk does not fit, EngineError where an id or a row is out of range or the model
   *   fails; the cache then is unchanged.
   */
  async append(chunk: readonly number[], rows: readonly number[]): Promise<Logits> {
    if (chunk.length === 0) throw new EngineError("append", "at least one token id", "none");
    if (this.length + chunk.length > this.context) {
      const found = `${this.length} cached and ${chunk.length} more`;
      throw new ContextError("context", `at most ${this.context} tokens`, found, "Shorten the prompt");
    }
    if (chunk.some((id) => !(id >= 0 && id < this.vocab))) {
      const remedy = "The tokenizer and the model do not belong together";
      throw new EngineError("append", `token ids from 0 to ${this.vocab - 1}`, "others", remedy);
    }
    if (rows.some((row) => !(row >= 0 && row < chunk.length))) {
      throw new EngineError("append", `rows from 0 to ${chunk.length - 1}`, rows);
    }
    const logits = await this.run(chunk, rows);
    this._ids.set(chunk, this.length);
    this.length += chunk.length;
    return logits;
  }

  /** Number of cached tokens with which `tokens` begin. */
  commonPrefix(tokens: readonly number[]): number {
    let same = 0;
    while (same < Math.min(this.length, tokens.length) && this._ids[same] === tokens[same]) same++;
    return same;
  }

  /** Truncates the cache to a length, without copying. */
  rewind(length: number): void {
    if (!(length >= 0 && length <= this.length)) {
      throw new EngineError("rewind", `a length from 0 to ${this.length}`, length);
    }
    this.length = length;
  }

  /** States which tokens the cache holds, where it was filled in another way than by `append`. */
  refill(ids: readonly number[]): void {
    if (ids.length > this.context || ids.some((id) => !(id >= 0 && id < this.vocab))) {
      throw new EngineError("cache", `at most ${this.context} ids below ${this.vocab}`, `${ids.length}, or others`);
    }
    this._ids.set(ids);
    this.length = ids.length;
  }

  /** Frees the model's memory. */
  abstract close(): Promise<void>;

  protected abstract run(chunk: readonly number[], rows: readonly number[]): Promise<Logits>;
}
