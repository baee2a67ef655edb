package inversespec.edge.payload

/** A table of a finite-state coder: for each state a symbol, and how the next state is read. */
internal class FseTable private constructor(
    private val log: Int,
    private val symbols: ByteArray,
    private val bits: ByteArray,
    private val bases: IntArray,
) {
    fun start(stream: BackwardBits): Int = stream.read(log)

    fun symbol(state: Int): Int = symbols[state].toInt() and 0xFF

    fun next(state: Int, stream: BackwardBits): Int = bases[state] + stream.read(bits[state].toInt())

    companion object {
        /** One symbol for ever. */
        fun single(symbol: Int) = FseTable(0, byteArrayOf(symbol.toByte()), ByteArray(1), IntArray(1))

        /** From counts that add up to 2^log, -1 standing for a symbol of less than one. */
        fun of(log: Int, counts: IntArray): FseTable {
            val size = 1 shl log
            val symbols = ByteArray(size)
            val next = IntArray(counts.size)
            var high = size
            for ((symbol, count) in counts.withIndex()) {
                if (count == -1) symbols[--high] = symbol.toByte()
                next[symbol] = if (count == -1) 1 else count
            }
            val step = (size shr 1) + (size shr 3) + 3
            var at = 0
            for ((symbol, count) in counts.withIndex()) {
                repeat(count) {
                    symbols[at] = symbol.toByte()
                    do at = at + step and size - 1 while (at >= high)
                }
            }
            val bits = ByteArray(size)
            val bases = IntArray(size)
            for (state in 0 until size) {
                val count = next[symbols[state].toInt() and 0xFF]++
                val width = log - (bitLength(count) - 1)
                bits[state] = width.toByte()
                bases[state] = (count shl width) - size
            }
            return FseTable(log, symbols, bits, bases)
        }

        /** From its description in the frame. */
        fun read(part: ZstdBytes, maxLog: Int, maxSymbol: Int): FseTable {
            val stream = ForwardBits(part)
            val log = stream.read(4) + 5
            if (log > maxLog) refuse("a table of $log bits, more than $maxLog")
            val counts = IntArray(maxSymbol + 1)
            var left = 1 shl log
            var symbol = 0
            while (left > 0) {
                if (symbol > maxSymbol) refuse("a table of more than ${maxSymbol + 1} symbols")
                val width = bitLength(left + 1)
                val low = (1 shl width - 1) - 1
                val short = (1 shl width) - 1 - (left + 1)
                var value = stream.read(width)
                if (value and low < short) {
                    stream.back(1)
                    value = value and low
                } else if (value > low) {
                    value -= short
                }
                val count = value - 1
                counts[symbol++] = count
                left -= if (count < 0) 1 else count
                if (count == 0) {
                    do {
                        val zeros = stream.read(2)
                        symbol += zeros
                    } while (zeros == 3)
                }
            }
            if (left < 0) refuse("a table with too large counts")
            stream.close()
            return of(log, counts.copyOf(minOf(symbol, maxSymbol + 1)))
        }
    }
}

/** A Huffman code of at most 11 bits over bytes. */
internal class HuffmanTable private constructor(
    private val log: Int,
    private val symbols: ByteArray,
    private val bits: ByteArray,
) {
    /** Decodes one whole stream into out[from until to]. */
    fun decode(part: ZstdBytes, out: ByteArray, from: Int, to: Int) {
        val stream = BackwardBits(part)
        for (index in from until to) {
            val code = stream.peek(log)
            out[index] = symbols[code]
            stream.skip(bits[code].toInt())
            if (stream.left < 0) refuse("a stream of literals that is too short")
        }
        if (stream.left != 0) refuse("a stream of literals that is too long")
    }

    companion object {
        private const val MAX_LOG = 11

        fun read(part: ZstdBytes): HuffmanTable {
            val header = part.byte()
            val weights = ArrayList<Int>()
            if (header >= 128) {
                val count = header - 127
                val bytes = part.part((count + 1) / 2)
                for (index in 0 until count) {
                    weights.add(bytes.data[bytes.at + index / 2].toInt() shr (if (index and 1 == 0) 4 else 0) and 15)
                }
            } else {
                interleaved(part.part(header), weights)
            }
            return of(weights)
        }

        /** Two states take turns until the stream has run out. */
        private fun interleaved(part: ZstdBytes, weights: ArrayList<Int>) {
            val table = FseTable.read(part, 6, 12)
            val stream = BackwardBits(part)
            var state = table.start(stream)
            var other = table.start(stream)
            if (stream.left < 0) refuse("weights that are too short")
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
            refuse("more than 255 weights")
        }

        /** The last symbol's weight is what is missing to a power of two. */
        private fun of(given: List<Int>): HuffmanTable {
            val sum = given.sumOf { if (it == 0) 0 else 1 shl it - 1 }
            if (given.size > 255 || sum == 0 || given.any { it > MAX_LOG }) refuse("weights of no Huffman code")
            val log = bitLength(sum)
            val missing = (1 shl log) - sum
            if (log > MAX_LOG || missing and missing - 1 != 0) refuse("weights of no Huffman code")
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
