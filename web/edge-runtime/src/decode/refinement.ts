/** Refinement of an answer: which of its tokens stay when further anchors arrive. */
import type { AnchorSet } from "../anchor-set.js";
import type { Token } from "../token.js";
import type { Ending } from "./ending.js";

/**
 * Number of leading tokens of the answer that the anchors `now` would have given as well.
 *
 * A filled token is the model's own choice given its prefix, whatever was forced before; a token that was forced and no
 * longer is may differ.
 *
 * @param ending the stop rule under the anchors `now`; `eosFrom`: the one under those before.
 * @param sameModel whether the model is the one that wrote the answer.
 */
export function kept(
  answer: readonly Token[],
  now: AnchorSet,
  ending: Ending,
  eosFrom: number,
  sameModel = true,
): number {
  let kept = Math.min(answer.length, ending.end, now.length ?? Infinity);
  // From here on an end token may have been suppressed that now counts.
  if (ending.eosFrom < eosFrom) kept = Math.min(kept, ending.eosFrom);
  for (const token of answer.slice(0, kept)) {
    const wanted = now.byPosition.get(token.position);
    if (wanted === undefined ? !sameModel || token.source === "anchor" : wanted !== token.id) return token.position;
  }
  return kept;
}
