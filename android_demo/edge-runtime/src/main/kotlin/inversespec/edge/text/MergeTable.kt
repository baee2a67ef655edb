package inversespec.edge.text

/** Merge table of BPE: pair of ids to rank and merged id. An open-addressing table: a boxed map of 150,000 is large. */
internal class MergeTable(expected: Int) {
    private val mask = Integer.highestOneBit(maxOf(8, expected) * 2 - 1).let { 2 * it - 1 }
    private val keys = LongArray(mask + 1) { -1 }
    private val values = LongArray(mask + 1)

    /** Adds a merge; for a repeated pair the later rank wins. */
    fun put(left: Int, right: Int, rank: Int, id: Int) {
        val slot = slot(key(left, right))
        keys[slot] = key(left, right)
        values[slot] = rank.toLong() shl 32 or id.toLong()
    }

    /** Rank in the upper 32 bits, merged id in the lower; -1 where the pair does not merge. */
    fun get(left: Int, right: Int): Long {
        val slot = slot(key(left, right))
        return if (keys[slot] < 0) -1 else values[slot]
    }

    private fun key(left: Int, right: Int) = left.toLong() shl 32 or right.toLong()

    private fun slot(key: Long): Int {
        val mixed = key * -7046029254386353131L
        var slot = (mixed ushr 32).toInt() and mask
        while (keys[slot] >= 0 && keys[slot] != key) slot = slot + 1 and mask
        return slot
    }
}
