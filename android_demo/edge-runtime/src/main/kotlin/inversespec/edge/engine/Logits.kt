package inversespec.edge.engine

import inversespec.edge.EngineException
import java.nio.FloatBuffer
import kotlin.math.ln

/**
 * Rows of logits in the model's output buffer: float32[rows, vocab].
 *
 * Read in blocks of a few kilobytes: single reads from a direct buffer are slow on a phone, and a copy of a whole row
 * would not stay in the processor's cache.
 */
internal class Logits(private val vocab: Int) {
    /** At least rows * vocab floats. */
    lateinit var buffer: FloatBuffer

    private val block = FloatArray(BLOCK)

    /** Id of a row's largest logit, the lowest id on ties, without the [banned] ids. */
    fun argmax(row: Int, banned: IntArray = NONE): Int {
        var best = -1
        var top = Float.NEGATIVE_INFINITY
        blocks(row) { start, size ->
            for (index in 0 until size) {
                val value = block[index]
                // Also true for NaN, which must not be skipped.
                if (!(value <= top) && (banned.isEmpty() || start + index !in banned)) {
                    if (value.isNaN()) throw notNumbers()
                    top = value
                    best = start + index
                }
            }
        }
        if (best < 0) throw notNumbers()
        return best
    }

    /** Natural logarithm of a token's probability; [best] is the id of the row's largest logit. */
    fun logProb(row: Int, id: Int, best: Int = argmax(row)): Double {
        val top = at(row, best)
        var sum = 0.0
        blocks(row) { _, size ->
            for (index in 0 until size) sum += exp(block[index] - top)
        }
        return at(row, id).toDouble() - top - ln(sum)
    }

    /** Copies a row. */
    fun copy(row: Int, into: FloatArray) = blocks(row) { start, size -> block.copyInto(into, start, 0, size) }

    private fun at(row: Int, id: Int): Float = buffer.get(row * vocab + id)

    private inline fun blocks(row: Int, each: (start: Int, size: Int) -> Unit) {
        val reader = buffer.duplicate()
        // Called on the base class: the covariant override of newer Java versions does not exist on Android 8.
        (reader as java.nio.Buffer).position(row * vocab)
        var start = 0
        while (start < vocab) {
            val size = minOf(BLOCK, vocab - start)
            reader.get(block, 0, size)
            each(start, size)
            start += size
        }
    }

    private fun notNumbers() = EngineException(
        "the model's logits are not numbers: expected finite values. Use another variant.",
    )

    companion object {
        private const val BLOCK = 2048
        private val NONE = IntArray(0)
        private const val LOG2_E = 1.44269504f

        /** e^x for x <= 0, relative error 1e-6; over a whole vocabulary the exact function takes as long as a pass. */
        fun exp(x: Float): Float {
            if (x < -87f) return 0f
            val power = x * LOG2_E
            val whole = power.toInt() - 1
            // Cody-Waite reduction: x - whole * ln 2, without the rounding error of a single product.
            val rest = x - whole * 0.693359375f + whole * 2.12194440e-4f
            val high = 1f / 24 + rest * (1f / 120 + rest * (1f / 720 + rest * (1f / 5040)))
            val series = 1f + rest * (1f + rest * (0.5f + rest * (1f / 6 + rest * high)))
            return Float.fromBits(whole + 127 shl 23) * series
        }
    }
}
