package inversespec.edge.payload.codecs

/** The low 32 bits of XXH64 with seed 0: the checksum that a zstd frame may end with. */
internal fun xxHash64Low(data: ByteArray): Int {
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
