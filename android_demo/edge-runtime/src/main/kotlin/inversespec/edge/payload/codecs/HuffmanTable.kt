package inversespec.edge.payload.codecs

/** A Huffman code of at most 11 bits over bytes. */
internal class HuffmanTable private constructor(
    private val log: Int,
    private val symbols: ByteArray,
    private val bits: ByteArray,
) {
    /** Decodes a whole stream into out[from until to]. */
    fun decode(input: ZstdBytes, out: ByteArray, from: Int, to: Int) {
        val stream = BackwardBitReader(input)
        for (index in from until to) {
            val code = stream.peek(log)
            out[index] = symbols[code]
            stream.skip(bits[code].toInt())
            if (stream.left < 0) refuseZstd("a stream of literals that is too short")
        }
        if (stream.left != 0) refuseZstd("a stream of literals that is too long")
    }

    companion object {
        private const val MAX_LOG = 11

        fun read(input: ZstdBytes): HuffmanTable {
            val header = input.byte()
            val weights = ArrayList<Int>()
            if (header >= 128) {
                val count = header - 127
                val bytes = input.slice((count + 1) / 2)
                for (index in 0 until count) {
                    weights.add(bytes.data[bytes.at + index / 2].toInt() shr (if (index and 1 == 0) 4 else 0) and 15)
                }
            } else {
                interleaved(input.slice(header), weights)
            }
            return of(weights)
        }

        /** Reads FSE-coded weights: two interleaved states until the stream is exhausted. */
        private fun interleaved(input: ZstdBytes, weights: ArrayList<Int>) {
            val table = FseTable.read(input, 6, 12)
            val stream = BackwardBitReader(input)
            var state = table.start(stream)
            var other = table.start(stream)
            if (stream.left < 0) refuseZstd("weights that are too short")
            while (weights.size <= 254) {
                weights.add(table.symbol(state))
                val next = table.next(state, stream)
                if (stream.left < 0) {
                    weights.add(table.symbol(other))
                    return
                }
                state = other
                other = next
            }
            refuseZstd("more than 255 weights")
        }

        /** Builds the table. The last symbol's weight is implicit: it completes the sum to a power of two. */
        private fun of(given: List<Int>): HuffmanTable {
            val sum = given.sumOf { if (it == 0) 0 else 1 shl it - 1 }
            if (given.size > 255 || sum == 0 || given.any { it > MAX_LOG }) refuseZstd("weights of no Huffman code")
            val log = bitLength(sum)
            val missing = (1 shl log) - sum
            if (log > MAX_LOG || missing and missing - 1 != 0) refuseZstd("weights of no Huffman code")
            val weights = given + bitLength(missing)
            val symbols = ByteArray(1 shl log)
            val bits = ByteArray(1 shl log)
            var at = 0
            for (weight in 1..log) {
                for ((symbol, own) in weights.withIndex()) {
                    if (own != weight) continue
                    val size = 1 shl weight - 1
                    symbols.fill(symbol.toByte(), at, at + size)
                    bits.fill((log + 1 - weight).toByte(), at, at + size)
                    at += size
                }
            }
            return HuffmanTable(log, symbols, bits)
        }
    }
}
