/**
 * Forced decoding: anchors at their positions whatever the model predicts, greedy tokens in the gaps (section 3.2).
 *
 * Responsible for the schedule of passes: one for the prompt and the leading anchors, then one per gap token, where the
 * anchors after a gap share the pass of its last token. Not responsible for the end of the answer (`Ending`), text, payload
 * bytes, or running the model.
 */
import type { AnchorSet } from "../anchor-set.js";
import type { Engine } from "../engine/engine.js";
import type { Logits } from "../engine/logits.js";
import { ContextError, UsageError } from "../errors.js";
import type { Source, Stop } from "../token.js";
import { type Ending, endingOf } from "./ending.js";

/** Options of an answer. None of them changes a token, except that `maxTokens` ends the answer. */
export interface FillOptions {
  /** Maximum number of tokens of the answer; the payload's canvas by default. */
  readonly maxTokens?: number | undefined;
  /** Compute the log probability of each anchor, which takes the output head on its row; true by default. */
  readonly scoreAnchors?: boolean | undefined;
  /** Emit the prompt's tokens first; false by default. */
  readonly echoPrompt?: boolean | undefined;
  /** Ends the answer: the iteration throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Most tokens, and most rows of logits, of one pass: bounds on memory. */
const MAX_CHUNK = 512;
const MAX_ROWS = 64;

/** A token before it has text. */
export interface RawToken {
  readonly id: number;
  readonly position: number;
  readonly source: Source;
  readonly logprob: number;
}

/** Cost of an answer so far, over all its runs. Wall time. */
export class Costs {
  passes = 0;
  reused = -1;
  prefillSeconds = 0;
  private readonly _started = performance.now();

  /** Seconds since the answer was begun. */
  get seconds(): number {
    return (performance.now() - this._started) / 1000;
  }

  /** Counts a pass that has ended. */
  pass(): void {
    this.passes++;
  }

  /** Notes the end of the first pass with a result. */
  prefilled(): void {
    this.prefillSeconds ||= this.seconds;
  }
}

/**
 * Decodes to the end, greedily, so equal input gives equal tokens. Returns the reason of the end; null where `interrupted`,
 * which is asked before every pass.
 *
 * @param answered the first ids of the answer where they are known already; decoding continues after them.
 */
export async function* forcedDecode(
  engine: Engine,
  prompt: readonly number[],
  anchors: AnchorSet,
  options: FillOptions,
  costs: Costs,
  answered: readonly number[] = [],
  interrupted: () => boolean = () => false,
): AsyncGenerator<RawToken, Stop | null> {
  const { signal, scoreAnchors = true, maxTokens } = options;
  if (prompt.length === 0) throw new UsageError("prompt", "at least one token", "none");
  if (prompt.length >= engine.context) {
    throw new ContextError("prompt", `less than ${engine.context} tokens`, prompt.length, "Shorten the prompt");
  }
  if (maxTokens !== undefined && !(maxTokens >= 1)) throw new UsageError("maxTokens", "1 or more", maxTokens);
  const ending = endingOf(anchors, engine.context - prompt.length, maxTokens);
  const eos = anchors.contract.eosIds;
  if (options.echoPrompt) {
    for (const [index, id] of prompt.entries()) {
      yield { id, position: index - prompt.length, source: "prompt", logprob: NaN };
    }
  }
  const text = [...prompt, ...answered];
  const position = () => text.length - prompt.length;
  const emit = (id: number, source: Source, logprob: number): RawToken => {
    text.push(id);
    return { id, position: position() - 1, source, logprob };
  };
  // The last token is always run, as it predicts the next.
  const reused = Math.min(engine.commonPrefix(text), text.length - 1);
  engine.rewind(reused);
  if (costs.reused < 0) costs.reused = reused;
  let pending = text.slice(reused);
  // Repeats: run the pending and the next known tokens, emit the known ones, predict one token.
  while (position() < ending.end) {
    const known: number[] = [];
    for (let at = position(); at < ending.end; at++) {
      const anchor = anchors.byPosition.get(at);
      if (anchor === undefined) break;
      known.push(anchor);
    }
    const open = position() + known.length < ending.end;
    const first = pending.length - 1; // the row that predicts the first known token
    const rows = scoreAnchors ? known.map((_, index) => first + index) : [];
    if (open) rows.push(first + known.length);
    const passes = runRows(engine, [...pending, ...known], rows, costs, signal, interrupted);
    for (const id of known) {
      let logprob = NaN;
      if (scoreAnchors) {
        const row = await passes.next();
        if (row.done) return null;
        logprob = row.value.logits.logProb(row.value.row, id);
      }
      yield emit(id, "anchor", logprob);
    }
    if (!open) continue;
    const row = await passes.next();
    if (row.done) return null;
    const token = greedy(row.value.logits, row.value.row, eos, ending, position());
    if (token === null) return "end token";
    yield emit(token, "fill", row.value.logits.logProb(row.value.row, token));
    pending = [token];
  }
  return ending.stop;
}

/** The most probable token; null where an end token ends the answer. */
function greedy(
  logits: Logits,
  row: number,
  eos: ReadonlySet<number>,
  ending: Ending,
  position: number,
): number | null {
  const best = logits.argmax(row);
  if (!eos.has(best)) return best;
  return position >= ending.eosFrom ? null : logits.argmax(row, eos);
}

/**
 * Runs token ids and yields the logits of the requested rows one by one; ends early where interrupted. Lazy, so that tokens
 * that need no row are emitted before the pass. Tokens after the last requested row are not run.
 */
async function* runRows(
  engine: Engine,
  ids: readonly number[],
  rows: readonly number[],
  costs: Costs,
  signal: AbortSignal | undefined,
  interrupted: () => boolean,
): AsyncGenerator<{ logits: Logits; row: number }> {
  for (const chunk of chunks((rows.at(-1) ?? -1) + 1, rows, MAX_CHUNK, MAX_ROWS)) {
    if (interrupted()) return;
    const logits = await engine.append(ids.slice(chunk.start, chunk.stop), chunk.rows, signal);
    costs.pass();
    if (chunk.rows.length) costs.prefilled();
    for (let row = 0; row < chunk.rows.length; row++) yield { logits, row };
  }
}

/** One pass: ids start until stop, and the requested rows relative to start. */
export interface Chunk {
  readonly start: number;
  readonly stop: number;
  readonly rows: readonly number[];
}

/** Splits `size` tokens into passes within both bounds. */
export function chunks(size: number, rows: readonly number[], maxChunk: number, maxRows: number): Chunk[] {
  const result: Chunk[] = [];
  let taken = 0;
  for (let start = 0; start < size; ) {
    let stop = Math.min(start + maxChunk, size);
    const beyond = rows[taken + maxRows];
    if (beyond !== undefined) stop = Math.min(stop, beyond);
    const wanted = rows.slice(taken, taken + maxRows).filter((row) => row < stop);
    result.push({ start, stop, rows: wanted.map((row) => row - start) });
    taken += wanted.length;
    start = stop;
  }
  return result;
}
