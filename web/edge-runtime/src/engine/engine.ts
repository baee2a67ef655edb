/**
 * A model with a KV cache: runs known tokens, rewinds the cache. For one answer at a time; its forks may run beside it.
 * Responsible for the cached ids and for argument checks; a subclass runs the model.
 */
import { ContextError, EngineError } from "../errors.js";
import type { Logits } from "./logits.js";
import { Turns } from "./turns.js";

export abstract class Engine {
  /** Taken by every pass, and shared with all forks. */
  turns = new Turns();
  private _ids: number[] = [];

  constructor(
    readonly context: number,
    readonly vocab: number,
  ) {}

  /** Number of tokens in the cache. */
  get length(): number {
    return this._ids.length;
  }

  /** Memory that the cache takes. */
  get cacheBytes(): number {
    return 0;
  }

  /** Another cache over the same weights, which begins with the first tokens of this one. */
  fork(tokens: number): this {
    const other = Object.assign(Object.create(Object.getPrototypeOf(this)), this) as this;
    other._ids = this._ids.slice(0, tokens);
    return other;
  }

  /**
   * Runs a chunk of known tokens in one pass, after the cached ones.
   *
   * @param rows indices into the chunk to compute logits for, ascending; row i predicts the token after chunk[i].
   * @param signal ends the wait for the turn; a pass that runs is run to its end.
   * @returns float32[rows.length, vocab], valid until the next call.
   * @throws ContextError where the chunk does not fit, EngineError where an id or a row is out of range or the model
   *   fails; the cache then is unchanged.
   */
  async append(chunk: readonly number[], rows: readonly number[], signal?: AbortSignal): Promise<Logits> {
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
    const logits = await this.turns.run(signal, () => this.run(chunk, rows));
    this._ids.push(...chunk);
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
    this._ids.length = length;
  }

  /** Frees the model's memory, also that of its forks. */
  abstract close(): Promise<void>;

  protected abstract run(chunk: readonly number[], rows: readonly number[]): Promise<Logits>;
}
