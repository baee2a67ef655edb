package inversespec.edge.payload.codecs

import inversespec.edge.MalformedPayloadException

/**
 * Integer arithmetic decoder.
 *
 * Not responsible for the meaning of the intervals. The state is an interval of a 56-bit number line that is
 * extended by a byte whenever it is narrower than 2^48; past the end of the data it reads zeros. All arithmetic
 * fits 63 bits.
 */
internal class RangeDecoder(private val data: ByteArray) {
    private var at = TOP_BITS / 8
    private var code = 0L
    private var range = 1L shl TOP_BITS

    init {
        for (index in 0 until at) code = code shl 8 or byteAt(index)
    }

    val size: Int get() = data.size

    /** Number of bytes not yet read; above 0 at the end of a message, the message is malformed. */
    val unread: Int get() = maxOf(0, data.size - at)

    /** The next value in [0, total); call [take] next, with the interval that contains it. */
    fun target(total: Long): Long {
        val target = code / (range / total)
        if (target >= total) {
            throw MalformedPayloadException(
                "body: expected a value below $total at byte $at, found $target: never written",
            )
        }
        return target
    }

    /** Consumes the interval [start, start + size) of a total. */
    fun take(start: Long, size: Long, total: Long) {
        val unit = range / total
        code -= start * unit
        range = size * unit
        while (range < LOW) {
            code = code shl 8 or byteAt(at++)
            range = range shl 8
        }
    }

    /** A uniformly distributed value in [0, total). */
    fun uniform(total: Int): Int {
        val value = target(total.toLong())
        take(value, 1, total.toLong())
        return value.toInt()
    }

    /** An index into [sizes], with a probability proportional to its size. */
    fun choice(sizes: IntArray): Int {
        val total = sizes.sum().toLong()
        val target = target(total)
        var start = 0L
        var index = 0
        while (target >= start + sizes[index]) start += sizes[index++]
        take(start, sizes[index].toLong(), total)
        return index
    }

    /** A number >= 0: (bit length of number + 1) - 1 by [choice], then the bits below the top one, uniformly. */
    fun number(sizes: IntArray): Int {
        var left = choice(sizes)
        var code = 1
        while (left > 0) {
            val step = minOf(16, left)
            code = code shl step or uniform(1 shl step)
            left -= step
        }
        return code - 1
    }

    private fun byteAt(index: Int): Long = if (index < data.size) data[index].toLong() and 0xFF else 0

    private companion object {
        const val TOP_BITS = 56
        const val LOW = 1L shl 48
    }
}
