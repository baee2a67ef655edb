package inversespec.edge.payload.codecs

/** Invalid zstd data; the message is what was found. Caught in [Compression]. */
internal class ZstdException(message: String) : Exception(message)

internal fun refuseZstd(message: String): Nothing = throw ZstdException(message)

/** A bounds-checked little-endian cursor over the bytes [at] until [end] of a zstd frame. */
internal class ZstdBytes(val data: ByteArray, var at: Int = 0, val end: Int = data.size) {
    val left: Int get() = end - at

    fun byte(): Int = integer(1).toInt()

    /** An unsigned integer of [count] bytes. */
    fun integer(count: Int): Long {
        var value = 0L
        for (index in 0 until count) value = value or (byteAt(at + index).toLong() shl 8 * index)
        at += count
        return value
    }

    /** The next [count] bytes as a slice of their own. */
    fun slice(count: Int): ZstdBytes {
        if (count > left) refuseZstd("the end of the data")
        at += count
        return ZstdBytes(data, at - count, at)
    }

    private fun byteAt(index: Int): Int =
        if (index < end) data[index].toInt() and 0xFF else refuseZstd("the end of the data")
}

/** Reads bits from the first byte on, the lowest bit of each byte first; used by table descriptions. */
internal class ForwardBitReader(private val input: ZstdBytes) {
    private var bit = 8L * input.at

    fun read(count: Int): Int {
        if (bit + count > 8L * input.end) refuseZstd("the end of a table")
        var value = 0
        for (index in 0 until count) {
            value = value or ((input.data[(bit shr 3).toInt()].toInt() shr (bit and 7).toInt() and 1) shl index)
            bit++
        }
        return value
    }

    /** Returns [count] bits to the input. */
    fun unread(count: Int) {
        bit -= count
    }

    /** Advances the input to the first byte of which no bit was read. */
    fun close() {
        input.at = ((bit + 7) shr 3).toInt()
    }
}

/** Reads bits from the end: downwards from below the highest set bit of the last byte. */
internal class BackwardBitReader(private val input: ZstdBytes) {
    /** Number of unread bits; negative once zeros have been read past the start. */
    var left: Int
        private set

    init {
        if (input.left == 0) refuseZstd("an empty stream of bits")
        val last = input.data[input.end - 1].toInt() and 0xFF
        if (last == 0) refuseZstd("a stream of bits without its end mark")
        left = 8 * input.left - (Integer.numberOfLeadingZeros(last) - 24) - 1
    }

    fun read(count: Int): Int {
        val value = peek(count)
        left -= count
        return value
    }

    fun skip(count: Int) {
        left -= count
    }

    fun peek(count: Int): Int {
        var value = 0
        for (index in left - 1 downTo left - count) value = value shl 1 or bitAt(index)
        return value
    }

    private fun bitAt(index: Int): Int =
        if (index < 0) 0 else input.data[input.at + (index shr 3)].toInt() shr (index and 7) and 1
}
