package inversespec.edge.engine

import inversespec.edge.ContextException
import inversespec.edge.EngineException

/** A running pass was told to end. The engine holds what it held before. */
internal class PassTerminated : RuntimeException("terminated")

/**
 * What forced decoding needs of a model: run known tokens, forget some. Keeps the ids of the cache and checks the
 * arguments; a subclass runs the model.
 */
internal abstract class Engine(val context: Int, val vocab: Int) : AutoCloseable {
    private val ids = IntArray(context)

    /** Number of tokens the cache holds. */
    var length = 0
        private set

    /** The id of the cache's token at a place, the oldest at 0. */
    fun token(place: Int): Int = ids[place]

    /**
     * Runs a chunk of known tokens in one pass, after what the cache holds.
     *
     * @param rows which of the chunk's rows give logits, ascending; row i predicts the token after chunk[i].
     * @return float32[rows.size, vocab], valid until the next call.
     * @throws ContextException where the chunk does not fit, [EngineException] where an id or a row is out of
     *   range or the model fails; then the cache holds what it held before.
     */
    fun append(chunk: IntArray, rows: IntArray): Logits {
        if (chunk.isEmpty()) throw EngineException("append: expected at least one token id, found none")
        if (length + chunk.size > context) {
            throw ContextException(
                "expected at most $context tokens, found $length cached and ${chunk.size} more. Shorten the prompt.",
            )
        }
        if (chunk.any { it !in 0 until vocab }) {
            throw EngineException(
                "append: expected token ids from 0 to ${vocab - 1}, found ${chunk.minOrNull()} to " +
                    "${chunk.maxOrNull()}. The tokenizer and the model do not belong together.",
            )
        }
        if (rows.any { it !in chunk.indices }) {
            throw EngineException("append: expected rows from 0 to ${chunk.size - 1}, found ${rows.toList()}")
        }
        val logits = run(chunk, rows)
        chunk.copyInto(ids, length)
        length += chunk.size
        return logits
    }

    /** Forgets everything past [length] tokens; copies nothing. */
    fun rewind(length: Int) {
        if (length !in 0..this.length) {
            throw EngineException("rewind: expected a length from 0 to ${this.length}, found $length")
        }
        this.length = length
    }

    /** Ends a running pass from another thread, which then raises [PassTerminated]; false lets passes run again. */
    open fun terminate(now: Boolean) = Unit

    protected abstract fun run(chunk: IntArray, rows: IntArray): Logits
}
