package inversespec.edge.payload

import inversespec.edge.MalformedPayloadException

/**
 * An arithmetic decoder over integers: bytes in, intervals of a total out.
 *
 * Knows nothing of what the intervals mean. The state is an interval of a 56-bit number line that grows by a
 * byte whenever it is narrower than 2^48; after the bytes' end it reads zeros. Everything fits 63 bits.
 */
internal class RangeDecoder(private val data: ByteArray) {
    private var at = TOP_BITS / 8
    private var code = 0L
    private var range = 1L shl TOP_BITS

    init {
        for (index in 0 until at) code = code shl 8 or byteAt(index)
    }

    val size: Int get() = data.size

    /** Bytes that no interval has looked at: more than none at the end of a message is an error. */
    val unread: Int get() = maxOf(0, data.size - at)

    /** Where in [0, total) the message stands; follow with [take] of the interval that holds it. */
    fun target(total: Long): Long {
        val target = code / (range / total)
        if (target >= total) {
            throw MalformedPayloadException(
                "body: expected a value below $total at byte $at, found $target: never written",
            )
        }
        return target
    }

    fun take(start: Long, size: Long, total: Long) {
        val unit = range / total
        code -= start * unit
        range = size * unit
        while (range < LOW) {
            code = code shl 8 or byteAt(at++)
            range = range shl 8
        }
    }

    /** A value in [0, total), all equally likely. */
    fun uniform(total: Int): Int {
        val value = target(total.toLong())
        take(value, 1, total.toLong())
        return value.toInt()
    }

    /** An index into [sizes], as likely as its share of their sum. */
    fun choice(sizes: IntArray): Int {
        val total = sizes.sum().toLong()
        val target = target(total)
        var start = 0L
        var index = 0
        while (target >= start + sizes[index]) start += sizes[index++]
        take(start, sizes[index].toLong(), total)
        return index
    }

    /** A number >= 0: the bit length of number + 1, less one, by [choice]; then the bits below the top one. */
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
