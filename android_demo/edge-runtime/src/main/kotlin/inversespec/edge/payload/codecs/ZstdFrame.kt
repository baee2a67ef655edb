package inversespec.edge.payload.codecs

/**
 * Decompressor for one zstd frame (RFC 8878) without a dictionary, in memory; for small texts, not for speed.
 *
 * Not responsible for bounds: the caller checks [contentSize] and [windowSize] before [decompress].
 */
internal class ZstdFrame(data: ByteArray) {
    private val input = ZstdBytes(data)

    /** Decompressed size as stated by the frame; null where it does not state one. */
    val contentSize: Long?

    /** Maximum distance of a match, in bytes. */
    val windowSize: Long

    /** Id of the required dictionary; 0 for none. */
    val dictionary: Long

    private val hasChecksum: Boolean
    private lateinit var out: ByteArray
    private var at = 0

    private var huffman: HuffmanTable? = null
    private val tables = arrayOfNulls<FseTable>(3)
    private val recent = intArrayOf(1, 4, 8)

    init {
        if (input.integer(4) != MAGIC) refuseZstd("another magic number")
        val flags = input.byte()
        if (flags and 8 != 0) refuseZstd("a reserved bit in the frame's header")
        val single = flags and 32 != 0
        hasChecksum = flags and 4 != 0
        var window = 0L
        if (!single) {
            val byte = input.byte()
            val base = 1L shl 10 + (byte shr 3)
            window = base + base / 8 * (byte and 7)
        }
        dictionary = input.integer(intArrayOf(0, 1, 2, 4)[flags and 3])
        contentSize = when (flags shr 6) {
            0 -> if (single) input.integer(1) else null
            1 -> input.integer(2) + 256
            2 -> input.integer(4)
            else -> input.integer(8)
        }
        windowSize = if (single) contentSize!! else window
    }

    /** Returns the content; refuses data after the frame. [contentSize] must be known and small. */
    fun decompress(): ByteArray {
        out = ByteArray(contentSize!!.toInt())
        val most = minOf(windowSize, MAX_BLOCK.toLong()).toInt()
        do {
            val header = input.integer(3).toInt()
            val size = header shr 3
            if (size > most) refuseZstd("a block of $size bytes, more than $most")
            when (header shr 1 and 3) {
                0 -> copyLiterals(input.slice(size), size)
                1 -> {
                    val byte = input.byte().toByte()
                    requireRoom(size)
                    out.fill(byte, at, at + size)
                    at += size
                }
                2 -> decompressBlock(input.slice(size), most)
                else -> refuseZstd("a reserved kind of block")
            }
        } while (header and 1 == 0)
        if (at != out.size) refuseZstd("$at bytes in place of ${out.size}")
        if (hasChecksum && input.integer(4).toInt() != xxHash64Low(out)) refuseZstd("another checksum")
        if (input.left > 0) refuseZstd("${input.left} bytes after its end")
        return out
    }

    /** Refuses to write more than the stated content size. */
    private fun requireRoom(size: Int) {
        if (size > out.size - at) refuseZstd("more bytes than it states")
    }

    private fun copyLiterals(source: ZstdBytes, size: Int) {
        requireRoom(size)
        if (size > source.left) refuseZstd("the end of the literals")
        System.arraycopy(source.data, source.at, out, at, size)
        source.at += size
        at += size
    }

    private fun decompressBlock(block: ZstdBytes, most: Int) {
        val start = at
        val literals = readLiterals(block, most)
        decodeSequences(block, literals)
        copyLiterals(literals, literals.left)
        if (at - start > most) refuseZstd("a block of more than $most bytes")
    }

    private fun readLiterals(block: ZstdBytes, most: Int): ZstdBytes {
        val first = block.byte()
        val kind = first and 3
        val format = first shr 2 and 3
        if (kind < 2) {
            val size = when (format) {
                1 -> first shr 4 or (block.byte() shl 4)
                3 -> first shr 4 or (block.integer(2).toInt() shl 4)
                else -> first shr 3
            }
            if (size > most) refuseZstd("$size literals in a block")
            if (kind == 0) return block.slice(size)
            val byte = block.byte().toByte()
            return ZstdBytes(ByteArray(size) { byte })
        }
        val width = if (format < 2) 10 else if (format == 2) 14 else 18
        val sizes = (first shr 4).toLong() or (block.integer(if (format < 2) 2 else format + 1) shl 4)
        val size = (sizes and (1L shl width) - 1).toInt()
        if (size > most) refuseZstd("$size literals in a block")
        val streams = block.slice((sizes shr width).toInt())
        if (kind == 2) huffman = HuffmanTable.read(streams)
        val table = huffman ?: refuseZstd("literals without a table")
        val result = ByteArray(size)
        if (format == 0) {
            table.decode(streams, result, 0, size)
        } else {
            val streamSizes = IntArray(3) { streams.integer(2).toInt() }
            val quarter = (size + 3) / 4
            if (3 * quarter > size) refuseZstd("too few literals for four streams")
            for (index in 0 until 3) {
                table.decode(streams.slice(streamSizes[index]), result, index * quarter, (index + 1) * quarter)
            }
            table.decode(streams, result, 3 * quarter, size)
        }
        return ZstdBytes(result)
    }

    private fun decodeSequences(block: ZstdBytes, literals: ZstdBytes) {
        var count = block.byte()
        if (count == 0) {
            if (block.left > 0) refuseZstd("bytes after a block's literals")
            return
        }
        if (count == 255) {
            count = block.integer(2).toInt() + 0x7F00
        } else if (count >= 128) {
            count = (count - 128 shl 8) + block.byte()
        }
        val modes = block.byte()
        if (modes and 3 != 0) refuseZstd("reserved bits in a block")
        for (kind in Kind.values()) {
            tables[kind.ordinal] = when (modes shr kind.shift and 3) {
                0 -> kind.default
                1 -> {
                    val symbol = block.byte()
                    if (symbol > kind.maxSymbol) refuseZstd("an unknown code")
                    FseTable.single(symbol)
                }
                2 -> FseTable.read(block, kind.maxLog, kind.maxSymbol)
                else -> tables[kind.ordinal] ?: refuseZstd("a repeated table that was never given")
            }
        }
        val (lengths, offsets, matches) = tables.map { it!! }
        val stream = BackwardBitReader(block)
        var length = lengths.start(stream)
        var offset = offsets.start(stream)
        var match = matches.start(stream)
        for (index in 0 until count) {
            val offsetCode = offsets.symbol(offset)
            val value = (1L shl offsetCode) + (stream.read(offsetCode).toLong() and 0xFFFFFFFF)
            val matchCode = matches.symbol(match)
            val matchSize = MATCH_BASE[matchCode] + stream.read(MATCH_BITS[matchCode])
            val lengthCode = lengths.symbol(length)
            val literalSize = LENGTH_BASE[lengthCode] + stream.read(LENGTH_BITS[lengthCode])
            if (index < count - 1) {
                length = lengths.next(length, stream)
                match = matches.next(match, stream)
                offset = offsets.next(offset, stream)
            }
            if (stream.left < 0) refuseZstd("the end of the sequences")
            copyLiterals(literals, literalSize)
            copyMatch(distance(value, literalSize), matchSize)
        }
        if (stream.left != 0) refuseZstd("bits after the sequences")
    }

    /** Distance of a match from its offset value: 1 to 3 refer to recent distances. */
    private fun distance(value: Long, literalSize: Int): Int {
        if (value > 3) {
            if (value - 3 > at) refuseZstd("a match before the beginning")
            recent[2] = recent[1]
            recent[1] = recent[0]
            recent[0] = (value - 3).toInt()
            return recent[0]
        }
        val which = (value - 1).toInt() + (if (literalSize == 0) 1 else 0)
        if (which > 0) {
            val found = if (which == 3) recent[0] - 1 else recent[which]
            if (which > 1) recent[2] = recent[1]
            recent[1] = recent[0]
            recent[0] = found
        }
        return recent[0]
    }

    private fun copyMatch(distance: Int, size: Int) {
        if (distance !in 1..at || distance > windowSize) refuseZstd("a match before the beginning")
        requireRoom(size)
        for (index in at until at + size) out[index] = out[index - distance]
        at += size
    }

    /** The three kinds of codes in a sequence, in the order of their tables and states. */
    private enum class Kind(val shift: Int, val maxLog: Int, val maxSymbol: Int, val default: FseTable) {
        LENGTH(6, 9, 35, table(6, "4 3", 11 to "2", 3 to "1", 9 to "2", 1 to "3 2", 5 to "1", 4 to "-1")),
        OFFSET(4, 8, 31, table(5, "1 1", 4 to "1", 3 to "2", 15 to "1", 5 to "-1")),
        MATCH(2, 9, 52, table(6, "1 4 3", 6 to "2", 37 to "1", 7 to "-1")),
    }

    private companion object {
        const val MAGIC = 0xFD2FB528L
        const val MAX_BLOCK = 1 shl 17

        /** A table of the counts in [first], followed by the repeated counts of each pair. */
        fun table(log: Int, first: String, vararg more: Pair<Int, String>): FseTable {
            val counts = first + more.joinToString("") { (times, text) -> " $text".repeat(times) }
            return FseTable.of(log, counts.split(" ").map(String::toInt).toIntArray())
        }

        val LENGTH_BITS = IntArray(16) + intArrayOf(1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
        val LENGTH_BASE = IntArray(16) { it } + intArrayOf(
            16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
        )
        val MATCH_BITS = IntArray(32) +
            intArrayOf(1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
        val MATCH_BASE = IntArray(32) { it + 3 } + intArrayOf(
            35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539,
        )
    }
}
