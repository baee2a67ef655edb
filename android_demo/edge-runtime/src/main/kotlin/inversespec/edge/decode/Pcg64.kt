package inversespec.edge.decode

import java.math.BigInteger

/**
 * The random numbers of NumPy's `default_rng(seed)`, so that a seed draws the same tokens on every runtime: PCG XSL RR
 * 128/64 (O'Neill, HMC-CS-2014-0905), seeded by NumPy's SeedSequence.
 */
internal class Pcg64(seed: Long) {
    private val increment: BigInteger
    private var state: BigInteger

    init {
        val words = generateState(seed).map { BigInteger.valueOf(it) }
        // Pairs of 32-bit words are little-endian, those of 64 bits big-endian.
        fun number(at: Int) = (words[at + 1] shl 96) + (words[at] shl 64) + (words[at + 3] shl 32) + words[at + 2]
        increment = ((number(4) shl 1) + BigInteger.ONE) and MASK
        state = (increment + number(0)) and MASK
        step()
    }

    private fun step() {
        state = (state * MULTIPLIER + increment) and MASK
    }

    /** Uniform on [0, 1), of 53 bits. */
    fun nextDouble(): Double {
        step()
        val folded = (state shr 64).toLong() xor state.toLong()
        val bits = java.lang.Long.rotateRight(folded, (state shr 122).toInt())
        return (bits ushr 11) * (1.0 / (1L shl 53))
    }

    private companion object {
        val MASK: BigInteger = (BigInteger.ONE shl 128) - BigInteger.ONE
        val MULTIPLIER = BigInteger("2360ed051fc65da44385df649fccf645", 16)

        /** Eight 32-bit words of SeedSequence([seed]), in arithmetic modulo 2^32. */
        fun generateState(seed: Long): List<Long> {
            val entropy = intArrayOf(seed.toInt(), (seed ushr 32).toInt(), 0, 0)
            var hash = 0x43b0d7e5
            fun hashed(value: Int): Int {
                val mixed = value xor hash
                hash *= 0x931e8875.toInt()
                return (mixed * hash).let { it xor (it ushr 16) }
            }
            fun mixed(x: Int, y: Int): Int =
                (x * 0xca01f9dd.toInt() - y * 0x4973f715).let { it xor (it ushr 16) }

            val pool = IntArray(4) { hashed(entropy[it]) }
            for (from in 0..3) for (to in 0..3) if (from != to) pool[to] = mixed(pool[to], hashed(pool[from]))
            var out = 0x8b51f9dd.toInt()
            return List(8) {
                val value = pool[it % 4] xor out
                out *= 0x58f38ded
                (value * out).let { word -> word xor (word ushr 16) }.toLong() and 0xFFFFFFFFL
            }
        }
    }
}
