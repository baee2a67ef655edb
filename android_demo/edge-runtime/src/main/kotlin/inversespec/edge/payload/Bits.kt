package inversespec.edge.payload

/** Data that is no zstd frame; the message says what was found. Never leaves [Squeeze]. */
internal class ZstdException(message: String) : Exception(message)

internal fun refuse(message: String): Nothing = throw ZstdException(message)

/** Bytes of a zstd frame, from [at] to before [end], little-endian; reading past the end is refused. */
internal class ZstdBytes(val data: ByteArray, var at: Int = 0, val end: Int = data.size) {
    val left: Int get() = end - at

    fun byte(): Int = number(1).toInt()

    fun number(count: Int): Long {
        var value = 0L
        for (index in 0 until count) value = value or (byteAt(at + index).toLong() shl 8 * index)
        at += count
        return value
    }

    /** The next [count] bytes as a part of their own. */
    fun part(count: Int): ZstdBytes {
        if (count > left) refuse("the end of the data")
        at += count
        return ZstdBytes(data, at - count, at)
    }

    private fun byteAt(index: Int): Int =
        if (index < end) data[index].toInt() and 0xFF else refuse("the end of the data")
}

/** Bits of a part from its first byte on, the lowest of a byte first; used by table descriptions. */
internal class ForwardBits(private val part: ZstdBytes) {
    private var bit = 8L * part.at

    fun read(count: Int): Int {
        if (bit + count > 8L * part.end) refuse("the end of a table")
        var value = 0
        for (index in 0 until count) {
            value = value or ((part.data[(bit shr 3).toInt()].toInt() shr (bit and 7).toInt() and 1) shl index)
            bit++
        }
        return value
    }

    fun back(count: Int) {
        bit -= count
    }

    /** Moves the part to the first byte that was not touched. */
    fun close() {
        part.at = ((bit + 7) shr 3).toInt()
    }
}

/** Bits of a whole part from its end: below the highest set bit of the last byte, downwards. */
internal class BackwardBits(private val part: ZstdBytes) {
    /** Bits not yet read; below 0 once more were read than there are, which then were zeros. */
    var left: Int
        private set

    init {
        if (part.left == 0) refuse("an empty stream of bits")
        val last = part.data[part.end - 1].toInt() and 0xFF
        if (last == 0) refuse("a stream of bits without its end mark")
        left = 8 * part.left - (Integer.numberOfLeadingZeros(last) - 24) - 1
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
        if (index < 0) 0 else part.data[part.at + (index shr 3)].toInt() shr (index and 7) and 1
}

/** The first half of XXH64 with seed 0, which a zstd frame may end with. */
internal fun zstdChecksum(data: ByteArray): Int {
    var at = 0
    fun long(): Long {
        var value = 0L
        for (index in 0 until 8) value = value or ((data[at + index].toLong() and 0xFF) shl 8 * index)
        at += 8
        return value
    }
    fun round(lane: Long, input: Long) = java.lang.Long.rotateLeft(lane + input * P2, 31) * P1
    var hash: Long
    if (data.size >= 32) {
        val lanes = longArrayOf(P1 + P2, P2, 0, -P1)
        while (at + 32 <= data.size) for (index in 0 until 4) lanes[index] = round(lanes[index], long())
        hash = java.lang.Long.rotateLeft(lanes[0], 1) + java.lang.Long.rotateLeft(lanes[1], 7) +
            java.lang.Long.rotateLeft(lanes[2], 12) + java.lang.Long.rotateLeft(lanes[3], 18)
        for (lane in lanes) hash = (hash xor round(0, lane)) * P1 + P4
    } else {
        hash = P5
    }
    hash += data.size
    while (at + 8 <= data.size) hash = java.lang.Long.rotateLeft(hash xor round(0, long()), 27) * P1 + P4
    if (at + 4 <= data.size) {
        var word = 0L
        for (index in 0 until 4) word = word or ((data[at + index].toLong() and 0xFF) shl 8 * index)
        at += 4
        hash = java.lang.Long.rotateLeft(hash xor word * P1, 23) * P2 + P3
    }
    while (at < data.size) hash = java.lang.Long.rotateLeft(hash xor (data[at++].toLong() and 0xFF) * P5, 11) * P1
    hash = (hash xor (hash ushr 33)) * P2
    hash = (hash xor (hash ushr 29)) * P3
    return (hash xor (hash ushr 32)).toInt()
}

private const val P1 = -7046029288634856825L
private const val P2 = -4417276706812531889L
private const val P3 = 1609587929392839161L
private const val P4 = -8796714831421723037L
private const val P5 = 2870177450012600261L
