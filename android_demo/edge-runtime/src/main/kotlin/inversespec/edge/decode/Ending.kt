package inversespec.edge.decode

import inversespec.edge.AnchorSet
import inversespec.edge.ContextException
import inversespec.edge.Stop

/** Where an answer ends: before position [end], because of [stop]. No end token counts before [hold]. */
internal class Ending private constructor(val end: Int, val stop: Stop, val hold: Int) {
    companion object {
        /** Above this share of anchored positions the last anchor is taken for the answer's end (section 3.3). */
        private const val END_MARKER_COVERAGE = 0.4

        /**
         * The stop rule for an answer of which at most [room] tokens fit the context. End tokens are held back
         * while anything the cloud has committed remains: an anchor, or the known length.
         */
        fun of(anchors: AnchorSet, room: Int, maxTokens: Int?): Ending {
            val committed = (anchors.positions.lastOrNull() ?: -1) + 1
            val hold = anchors.length ?: committed
            val limit = maxTokens ?: anchors.canvas
            if (minOf(hold, limit) > room) {
                throw ContextException(
                    "expected an answer of at most $room tokens after this prompt, found one of " +
                        "${minOf(hold, limit)} in the payload. Shorten the prompt.",
                )
            }
            val (end, stop) = when {
                anchors.length != null -> anchors.length to Stop.LENGTH
                anchors.coverage > END_MARKER_COVERAGE -> committed to Stop.LAST_ANCHOR
                else -> anchors.canvas to Stop.LIMIT
            }
            val most = minOf(limit, room)
            return if (end <= most) Ending(end, stop, hold) else Ending(most, Stop.LIMIT, hold)
        }
    }
}
