package inversespec.edge.decode

import inversespec.edge.*

/** Refinement of an answer: which of its tokens stay when further anchors arrive. */
internal object Refinement {
    /**
     * Number of leading tokens of the answer that the anchors [now] would have given as well.
     *
     * A filled token is the model's own choice given its prefix, whatever was forced before; a token that was forced
     * and no longer is may differ.
     *
     * @param ending the stop rule under the anchors [now]; [eosFrom]: [Ending.eosFrom] under those before.
     */
    fun kept(answer: List<Token>, now: AnchorSet, ending: Ending, eosFrom: Int, sameModel: Boolean = true): Int {
        val forced = now.byPosition
        var kept = minOf(answer.size, ending.end, now.length ?: Int.MAX_VALUE)
        // From here on an end token may have been suppressed that now counts.
        if (ending.eosFrom < eosFrom) kept = minOf(kept, ending.eosFrom)
        for (token in answer.subList(0, kept)) {
            val wanted = forced[token.position]
            if (if (wanted == null) !sameModel || token.source == Source.ANCHOR else wanted != token.id) return token.position
        }
        return kept
    }
}
