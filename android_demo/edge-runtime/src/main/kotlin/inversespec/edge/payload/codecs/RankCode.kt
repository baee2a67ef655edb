package inversespec.edge.payload.codecs

import kotlin.math.exp
import kotlin.math.ln

/**
 * A token named by its rank among a model's predictions: the one of this [rank], by probability, among the ids of the
 * [mode] whose low bits are [residue]. For [ESCAPE] the residue is the id itself.
 *
 * Not responsible for models or bytes. payload/SPEC.md, "Body of predictive", defines the codes.
 */
internal class RankCode(val mode: Int, val residue: Int, val rank: Int) {
    override fun toString() = "mode $mode, residue $residue, rank $rank"

    companion object {
        // Modes: the likeliest id; by rank among all; among the ids with the same 3 or 6 low bits; among the tokens of
        // prompt and answer; the id itself.
        const val TOP = 0
        const val RANK = 1
        const val RANK_SEEN = 4
        const val ESCAPE = 5
        const val MODES = 6

        /** Low bits that a code of each mode states. */
        val BITS = intArrayOf(0, 0, 3, 6, 0)

        private val ODDS_EDGES = doubleArrayOf(-3.0, -1.5, 0.0)
        private val MARGIN_EDGES = doubleArrayOf(2.0, 5.0)
        const val BUCKETS = 6

        val LIKELIEST = RankCode(TOP, 0, 0)

        /** Id of a row's largest value, the lowest id on ties. */
        fun argmax(row: DoubleArray): Int {
            var best = 0
            for (id in 1 until row.size) if (row[id] > row[best]) best = id
            return best
        }

        /**
         * Confidence bucket of a row, 0 to [BUCKETS] - 1: by the log-odds of the likeliest token where these are below
         * 0, else by its margin over the second.
         */
        fun confidenceBucket(row: DoubleArray): Int {
            val top = argmax(row)
            var second = Double.NEGATIVE_INFINITY
            for (id in row.indices) if (id != top && row[id] > second) second = row[id]
            if (second == Double.NEGATIVE_INFINITY) return BUCKETS - 1
            val margin = row[top] - second
            var sum = 0.0
            for (id in row.indices) if (id != top) sum += exp(row[id] - second)
            val odds = margin - ln(sum)
            val bucket = ODDS_EDGES.count { odds >= it }
            return if (bucket < ODDS_EDGES.size) bucket else bucket + MARGIN_EDGES.count { margin >= it }
        }

        /** The token of a code, or -1 where there is none. [seen]: the tokens of prompt and answer so far. */
        fun tokenOf(row: DoubleArray, code: RankCode, seen: Set<Int>): Int {
            if (code.mode == TOP) return argmax(row).takeIf { row[it].isFinite() } ?: -1
            if (code.mode == ESCAPE) return if (row[code.residue].isFinite()) code.residue else -1
            val members = when (code.mode) {
                RANK_SEEN -> seen.toIntArray().apply { sort() }
                else -> {
                    val step = 1 shl BITS[code.mode]
                    IntArray(maxOf(0, (row.size - code.residue + step - 1) / step)) { code.residue + it * step }
                }
            }
            val values = DoubleArray(members.size)
            var count = 0
            for (id in members) {
                if (!row[id].isFinite()) continue
                members[count] = id
                values[count++] = row[id]
            }
            if (code.rank >= count) return -1
            // The value of that rank by sorting the values alone; among equal ones the lower id ranks first.
            val sorted = values.copyOf(count).apply { sort() }
            val value = sorted[count - 1 - code.rank]
            var before = 0
            for (index in 0 until count) if (values[index] > value) before++
            var equal = code.rank - before
            for (index in 0 until count) if (values[index] == value && equal-- == 0) return members[index]
            return -1
        }
    }
}
