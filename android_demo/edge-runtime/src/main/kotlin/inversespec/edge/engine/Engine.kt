package inversespec.edge.engine

import inversespec.edge.ContextException
import inversespec.edge.EngineException

/** A running pass was terminated. The cache is unchanged. */
internal class PassTerminatedException : RuntimeException("terminated")

/**
 * A model with a KV cache: runs known tokens, rewinds the cache. Responsible for the cached ids and for argument
 * checks; a subclass runs the model.
 */
internal abstract class Engine(val context: Int, val vocab: Int) : AutoCloseable {
    private val ids = IntArray(context)

    /** Number of tokens in the cache. */
    var length = 0
        private set

    /** Id of the cached token at an index, the oldest at 0. */
    fun token(index: Int): Int = ids[index]

    /**
     * Runs a chunk of known tokens in one pass, after the cached ones.
     *
     * @param rows indices into the chunk to compute logits for, ascending; row i predicts the token after chunk[i].
     * @return float32[rows.size, vocab], valid until the next call.
     * @throws ContextException where the chunk does not fit, [EngineException] where an id or a row is out of
     *   range or the model fails; the cache then is unchanged.
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

    /** Number of cached tokens with which the first [size] of [tokens] begin. */
    fun commonPrefix(tokens: IntArray, size: Int): Int {
        val most = minOf(length, size)
        return (0 until most).firstOrNull { ids[it] != tokens[it] } ?: most
    }

    /** Truncates the cache to [length] tokens, without copying. */
    fun rewind(length: Int) {
        if (length !in 0..this.length) {
            throw EngineException("rewind: expected a length from 0 to ${this.length}, found $length")
        }
        this.length = length
    }

    /** Keys and values of the first [tokens] tokens, [1, C, tokens, D] of every tensor, joined: float32, little-endian. */
    open fun cached(tokens: Int): ByteArray = ByteArray(0)

    /** Puts tokens, and what [cached] gave for them, in place of all that was run. */
    fun restore(tokens: IntArray, cache: ByteArray) {
        rewind(0)
        write(cache, tokens.size)
        tokens.copyInto(ids)
        length = tokens.size
    }

    protected open fun write(cache: ByteArray, tokens: Int) = Unit

    /** Terminates a running pass from another thread, with [PassTerminatedException]; false permits passes again. */
    open fun terminate(now: Boolean) = Unit

    protected abstract fun run(chunk: IntArray, rows: IntArray): Logits
}
