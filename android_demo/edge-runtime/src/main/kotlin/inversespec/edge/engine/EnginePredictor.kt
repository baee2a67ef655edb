package inversespec.edge.engine

import inversespec.edge.*
import kotlin.math.exp
import kotlin.math.ln

/**
 * A model with float32 activations as a [Predictor]: log probabilities of ordinary tokens and of the end.
 *
 * @param identity the fingerprint of the model's variant.
 * @param cancelled polled before every pass; throws PassTerminatedException.
 */
internal class EnginePredictor(
    private val engine: Engine,
    override val promptIds: IntArray,
    contract: Contract,
    override val identity: ByteArray,
    private val cancelled: () -> Boolean,
) : Predictor {
    private val eos = contract.eosIds.toIntArray()
    private val reserved = contract.reserved.toIntArray()
    private val logits = FloatArray(engine.vocab)
    private val row = DoubleArray(contract.vocabSize + 1)

    var passes = 0
        private set

    /** Prompt tokens that the first pass found in the cache. */
    var reused = -1
        private set

    override fun row(text: List<Int>): DoubleArray {
        val tokens = promptIds + text
        var at = minOf(engine.commonPrefix(tokens, tokens.size), tokens.size - 1)
        engine.rewind(at)
        if (reused < 0) reused = at
        while (at < tokens.size) {
            if (cancelled()) throw PassTerminatedException()
            val end = minOf(at + MAX_CHUNK, tokens.size)
            val rows = if (end == tokens.size) intArrayOf(end - at - 1) else IntArray(0)
            val found = engine.append(tokens.copyOfRange(at, end), rows)
            passes++
            if (rows.isNotEmpty()) found.copy(0, logits)
            at = end
        }
        return normalised()
    }

    private fun normalised(): DoubleArray {
        var top = Float.NEGATIVE_INFINITY
        for (value in logits) {
            if (value.isNaN() || value.isInfinite()) {
                throw EngineException(
                    "the model's logits are not numbers: expected finite values. Use another variant.",
                )
            }
            if (value > top) top = value
        }
        var sum = 0.0
        for (value in logits) sum += exp((value - top).toDouble())
        val total = top + ln(sum)
        val end = row.size - 1
        for (id in 0 until end) row[id] = logits[id] - total
        for (id in reserved) row[id] = Double.NEGATIVE_INFINITY
        row[end] = top + ln(eos.sumOf { exp((logits[it] - top).toDouble()) }) - total
        return row
    }

    private companion object {
        const val MAX_CHUNK = 512
    }
}
