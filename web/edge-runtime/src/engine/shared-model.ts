/**
 * One loaded model for any number of answers. Each has a KV cache of its own, so none sees another's text; the passes of all
 * take turns. A cache that is given back waits for a text that continues it.
 */
import { EngineError } from "../errors.js";
import type { Engine } from "./engine.js";
import type { Turns } from "./turns.js";

/** Most bytes of caches that wait, and most caches; the latest always does. */
const MAX_BYTES = 128 << 20;
const MAX_WAITING = 16;
/** Most tokens that a cache loses to another text; one that would lose more is copied. */
const MAX_CUT = 8;

export class SharedModel {
  /** The latest is the last. */
  private _waiting: Engine[] = [];

  /** @param _engine the loaded model, whose own cache stays empty. */
  constructor(
    private readonly _engine: Engine,
    turns: Turns,
  ) {
    _engine.turns = turns;
  }

  /**
   * Runs an answer with an engine for it alone, whose cache begins with what any that waits has of the text's start. After an
   * error the cache is not used again.
   */
  async *lease<T, R>(text: readonly number[], body: (engine: Engine) => AsyncGenerator<T, R>): AsyncGenerator<T, R> {
    const engine = this._take(text);
    let failed = false;
    try {
      return yield* body(engine);
    } catch (error) {
      failed = error instanceof EngineError;
      throw error;
    } finally {
      if (!failed) this._giveBack(engine);
    }
  }

  /** Frees the model's memory. */
  close(): Promise<void> {
    this._waiting = [];
    return this._engine.close();
  }

  private _take(text: readonly number[]): Engine {
    let best = this._engine;
    let shared = -1;
    for (const each of this._waiting) {
      const same = each.commonPrefix(text);
      if (same >= shared) [best, shared] = [each, same];
    }
    // One that is cut far belongs to a conversation that may go on.
    if (shared < 0 || best.length - shared > MAX_CUT) return best.fork(Math.max(0, shared));
    this._waiting = this._waiting.filter((each) => each !== best);
    return best;
  }

  private _giveBack(engine: Engine): void {
    this._waiting.push(engine);
    let bytes = this._waiting.reduce((sum, each) => sum + each.cacheBytes, 0);
    while (this._waiting.length > MAX_WAITING || (this._waiting.length > 1 && bytes > MAX_BYTES)) {
      bytes -= this._waiting.shift()?.cacheBytes ?? 0;
    }
  }
}
