package inversespec.edge.decode

import inversespec.edge.*

/** The answer ends before position [end], because of [stop]. End tokens count from [eosFrom] on. */
internal class Ending private constructor(val end: Int, val stop: Stop, val eosFrom: Int) {
    companion object {
        /** Coverage above which the last anchor is the end of the answer (section 3.3). */
        private const val END_MARKER_COVERAGE = 0.4

        /**
         * The stop rule for an answer of which at most [room] tokens fit the context. End tokens are suppressed
         * up to the last anchor, or up to the known length.
         *
         * @throws ContextException where the anchors do not fit.
         */
        fun of(anchors: AnchorSet, room: Int, maxTokens: Int?): Ending {
            val committed = (anchors.positions.lastOrNull() ?: -1) + 1
            val eosFrom = anchors.length ?: committed
            val limit = maxTokens ?: anchors.canvas
            if (minOf(eosFrom, limit) > room) {
                throw ContextException(
                    "expected an answer of at most $room tokens after this prompt, found one of " +
                        "${minOf(eosFrom, limit)} in the payload. Shorten the prompt.",
                )
            }
            val (end, stop) = when {
                anchors.length != null -> anchors.length to Stop.LENGTH
                anchors.coverage > END_MARKER_COVERAGE -> committed to Stop.LAST_ANCHOR
                else -> anchors.canvas to Stop.LIMIT
            }
            val most = minOf(limit, room)
            return if (end <= most) Ending(end, stop, eosFrom) else Ending(most, Stop.LIMIT, eosFrom)
        }
    }
}
