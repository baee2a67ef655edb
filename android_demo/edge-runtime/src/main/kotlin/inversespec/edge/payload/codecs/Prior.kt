package inversespec.edge.payload.codecs

import inversespec.edge.payload.ByteReader

/** Context before the first position of a response. */
internal const val START = -1

/** Pseudo-token after the last token of a response. */
internal const val END = -2

/** Model weights per feature value, in 1/16 bit, except escapeBits, which are interval sizes. In file order. */
internal class Weights(reader: ByteReader) {
    val seen = reader.numbers(16)
    val unseen = reader.numbers(16)
    val rank = reader.numbers(18)
    val promptCount = reader.numbers(5)
    val answerCount = reader.numbers(4)
    val scale = reader.numbers(4)
    val source = reader.numbers(4)
    val pair = reader.numbers(17)
    val triple = reader.numbers(13)
    val promptMatch = reader.numbers(19)
    val answerMatch = reader.numbers(19)
    val endPair = reader.numbers(17)
    val endLine = reader.numbers(19)
    val endAge = reader.numbers(7)
    val escape = reader.numbers(10)
    val escapeBits = reader.numbers(24)

    private fun ByteReader.numbers(count: Int): IntArray {
        val bytes = take(2 * count, "weights")
        return IntArray(count) { (bytes[2 * it].toInt() and 0xFF) or (bytes[2 * it + 1].toInt() shl 8) }
    }
}

/** Followers of a context: token (or [END]) to class, in file order. */
internal typealias Followers = Map<Int, Int>

/**
 * Statistics of one vocabulary's tokens; empty for a vocabulary without statistics.
 *
 * @property classes frequency class of a token, 1 to 15, in order of id.
 * @property pairs followers by context token.
 * @property triples followers by the [context] of two tokens.
 * @property alike token to the token it is compared as.
 * @property breaks tokens that end a line.
 */
internal class Words(
    val classes: Map<Int, Int> = emptyMap(),
    private val pairs: Map<Int, Followers> = emptyMap(),
    private val triples: Map<Long, Followers> = emptyMap(),
    val alike: Map<Int, Int> = emptyMap(),
    val breaks: Set<Int> = emptySet(),
) {
    fun pairs(last: Int): Followers = pairs[last] ?: emptyMap()

    fun triples(before: Int, last: Int): Followers = triples[context(before, last)] ?: emptyMap()

    companion object {
        /** Key of the context of two tokens. */
        fun context(before: Int, last: Int): Long = before.toLong() shl 32 or (last.toLong() and 0xFFFFFFFF)
    }
}

/** Weights and token statistics of one vocabulary. */
internal class Prior(val weights: Weights, val words: Words)
