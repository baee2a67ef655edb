package inversespec.edge.decode

import inversespec.edge.EngineException
import inversespec.edge.Sampling
import inversespec.edge.engine.Logits
import kotlin.math.exp

/** Draws the tokens of one answer: softmax(logits / temperature), cut to its nucleus, as edge_runtime/decode/acceptance.py. */
internal class Sampler(private val sampling: Sampling, vocab: Int) {
    private val random = Pcg64(sampling.seed)
    private val logits = FloatArray(vocab)
    private val shares = DoubleArray(vocab)

    /** A token of a row; never one of [barred]. */
    fun draw(rows: Logits, row: Int, barred: IntArray): Int {
        rows.copy(row, logits)
        for (id in barred) logits[id] = Float.NEGATIVE_INFINITY
        val top = logits.fold(Float.NEGATIVE_INFINITY) { most, value -> maxOf(most, value) }.toDouble() // NaN where one is
        if (!top.isFinite()) {
            throw EngineException(
                "the model's logits are not numbers: expected finite values. Use another variant.",
            )
        }
        for (id in shares.indices) shares[id] = exp((logits[id] - top) / sampling.temperature)
        normalise()
        if (sampling.topP != null && sampling.topP < 1) cut(sampling.topP)
        val wanted = random.nextDouble() * shares.sum()
        var mass = 0.0
        for (id in shares.indices) {
            mass += shares[id]
            if (mass > wanted) return id
        }
        return shares.indices.last { shares[it] > 0 } // only by rounding
    }

    private fun normalise() {
        val sum = shares.sum()
        for (id in shares.indices) shares[id] /= sum
    }

    /** Leaves the shortest run of the likeliest tokens whose mass exceeds [mass]; of equal ones the first. */
    private fun cut(mass: Double) {
        // Few tokens hold most of the mass: those of the rest need not be sorted.
        var floor = 1.0
        var leading: List<Int>
        do {
            floor = if (floor < 1e-12) 0.0 else floor / 64
            leading = shares.indices.filter { shares[it] >= floor }
        } while (floor > 0 && leading.sumOf { shares[it] } <= mass)
        var held = 0.0
        val nucleus = leading.sortedByDescending { shares[it] }
            .takeWhile { id -> (held <= mass).also { held += shares[id] } }.toHashSet()
        for (id in shares.indices) if (id !in nucleus) shares[id] = 0.0
        normalise()
    }
}
