package inversespec.edge.text

import java.util.PriorityQueue

/**
 * Byte-pair encoding: starts from single symbols and merges the pair of the lowest rank, the leftmost first, until
 * no pair merges. Runs in O(n log n), as the length of a piece of text is not bounded.
 */
internal class Bpe(private val symbols: Symbols, private val merges: MergeTable) {
    /** Passes the ids of a piece of text to [out], in order. */
    fun encode(piece: String, out: (Int) -> Unit) {
        val ids = symbols.ids(piece)
        val size = ids.size
        val next = IntArray(size) { it + 1 }
        val before = IntArray(size) { it - 1 }
        // Rank in the upper 32 bits, index in the lower: the queue's order is the order of merging.
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
