/** The stop rule of an answer (section 3.3). */
import type { AnchorSet } from "../anchor-set.js";
import { ContextError } from "../errors.js";
import type { Stop } from "../token.js";

/** Coverage above which the last anchor is the end of the answer. */
const END_MARKER_COVERAGE = 0.4;

/** The answer ends before position `end`, because of `stop`. End tokens count from `eosFrom` on. */
export interface Ending {
  readonly end: number;
  readonly stop: Stop;
  readonly eosFrom: number;
}

/**
 * The stop rule for an answer of which at most `room` tokens fit the context. End tokens are suppressed up to the last
 * anchor, or up to the known length. Throws ContextError where the anchors do not fit.
 */
export function endingOf(anchors: AnchorSet, room: number, maxTokens: number | undefined): Ending {
  const committed = (anchors.positions.at(-1) ?? -1) + 1;
  const eosFrom = anchors.length ?? committed;
  const limit = maxTokens ?? anchors.canvas;
  if (Math.min(eosFrom, limit) > room) {
    const found = `${Math.min(eosFrom, limit)} in the payload`;
    throw new ContextError("answer", `at most ${room} tokens after this prompt`, found, "Shorten the prompt");
  }
  let ending: [number, Stop] = [anchors.canvas, "limit"];
  if (anchors.length !== null) ending = [anchors.length, "length"];
  else if (anchors.coverage > END_MARKER_COVERAGE) ending = [committed, "last anchor"];
  const most = Math.min(limit, room);
  const [end, stop] = ending[0] <= most ? ending : ([most, "limit"] as const);
  return { end, stop, eosFrom };
}
