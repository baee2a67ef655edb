package inversespec.edge.payload.codecs

/** A decoding table of finite state entropy (FSE): per state its symbol, and the bits and base of the next state. */
internal class FseTable private constructor(
    private val log: Int,
    private val symbols: ByteArray,
    private val bits: ByteArray,
    private val bases: IntArray,
) {
    fun start(stream: BackwardBitReader): Int = stream.read(log)

    fun symbol(state: Int): Int = symbols[state].toInt() and 0xFF

    fun next(state: Int, stream: BackwardBitReader): Int = bases[state] + stream.read(bits[state].toInt())

    companion object {
        /** A table of one symbol that takes no bits. */
        fun single(symbol: Int) = FseTable(0, byteArrayOf(symbol.toByte()), ByteArray(1), IntArray(1))

        /** Builds a table from counts that add up to 2^log; -1 is a symbol with a probability below 1. */
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

        /** Reads a table description. */
        fun read(input: ZstdBytes, maxLog: Int, maxSymbol: Int): FseTable {
            val stream = ForwardBitReader(input)
            val log = stream.read(4) + 5
            if (log > maxLog) refuseZstd("a table of $log bits, more than $maxLog")
            val counts = IntArray(maxSymbol + 1)
            var left = 1 shl log
            var symbol = 0
            while (left > 0) {
                if (symbol > maxSymbol) refuseZstd("a table of more than ${maxSymbol + 1} symbols")
                val width = bitLength(left + 1)
                val low = (1 shl width - 1) - 1
                val short = (1 shl width) - 1 - (left + 1)
                var value = stream.read(width)
                if (value and low < short) {
                    stream.unread(1)
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
            if (left < 0) refuseZstd("a table with too large counts")
            stream.close()
            return of(log, counts.copyOf(minOf(symbol, maxSymbol + 1)))
        }
    }
}
