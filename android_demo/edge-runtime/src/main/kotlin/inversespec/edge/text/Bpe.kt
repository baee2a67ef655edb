package inversespec.edge.text

import java.util.PriorityQueue

/** From pairs of ids to the rank and id of what they merge to, in two arrays: a boxed map of 150,000 is a burden. */
internal class Merges(expected: Int) {
    private val mask = Integer.highestOneBit(maxOf(8, expected) * 2 - 1).let { 2 * it - 1 }
    private val keys = LongArray(mask + 1) { -1 }
    private val values = LongArray(mask + 1)

    /** A pair given again takes the later rank. */
    fun put(left: Int, right: Int, rank: Int, id: Int) {
        val slot = slot(key(left, right))
        keys[slot] = key(left, right)
        values[slot] = rank.toLong() shl 32 or id.toLong()
    }

    /** Rank in the upper half, id in the lower; -1 where the pair does not merge. */
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

/**
 * Byte-pair encoding: starts from single bytes and merges the pair of the lowest rank, the leftmost first, until
 * none merges. Takes n log n steps, for a piece of text may be as long as its sender likes.
 */
internal class Bpe(private val byteIds: IntArray, private val merges: Merges) {
    fun encode(piece: ByteArray, out: (Int) -> Unit) {
        val size = piece.size
        val ids = IntArray(size) { byteIds[piece[it].toInt() and 0xFF] }
        val next = IntArray(size) { it + 1 }
        val before = IntArray(size) { it - 1 }
        // Rank in the upper half, place in the lower: the queue's order is the order of merging.
        val queue = PriorityQueue<Long>()
        fun offer(at: Int) {
            if (at < 0 || next[at] >= size) return
            val found = merges.get(ids[at], ids[next[at]])
            if (found >= 0) queue.add((found ushr 32 shl 32) or at.toLong())
        }
        for (at in 0 until size - 1) offer(at)
        while (queue.isNotEmpty()) {
            val top = queue.remove()
            val at = top.toInt()
            if (ids[at] < 0 || next[at] >= size) continue
            val right = next[at]
            val found = merges.get(ids[at], ids[right])
            // The pair may have changed since it was queued.
            if (found < 0 || found ushr 32 != top ushr 32) continue
            ids[at] = found.toInt()
            ids[right] = GONE
            next[at] = next[right]
            if (next[at] < size) before[next[at]] = at
            offer(before[at])
            offer(at)
        }
        var at = 0
        while (at < size) {
            out(ids[at])
            at = next[at]
        }
    }

    private companion object {
        const val GONE = -1
    }
}
