package inversespec.edge.engine

import inversespec.edge.ContextException
import inversespec.edge.EngineException

/** The caller has cancelled: before a pass, or while it ran. The cache is unchanged. */
internal class PassTerminatedException : RuntimeException("terminated")

/**
 * A model with a KV cache: runs known tokens, rewinds the cache. Responsible for the cached ids and for argument
 * checks; a subclass runs the model.
 *
 * @property turns taken by every pass, and shared with all forks.
 */
internal abstract class Engine(val context: Int, val vocab: Int, val turns: Turns) : AutoCloseable {
    private var ids = IntArray(0)

    @Volatile
    private var terminated = false

    /** Number of tokens in the cache. */
    var length = 0
        private set

    /** Memory that the cache takes. */
    open val cacheBytes: Long get() = 0

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
        val logits = turns.take({ terminated }) { run(chunk, rows) }
        hold(chunk)
        return logits
    }

    private fun hold(chunk: IntArray) {
        if (length + chunk.size > ids.size) ids = ids.copyOf(2 * (length + chunk.size))
        chunk.copyInto(ids, length)
        length += chunk.size
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

    /** Another cache over the same weights, which begins with the first [tokens] of this one. */
    fun fork(tokens: Int): Engine {
        val other = copy(tokens)
        if (tokens > 0) other.hold(ids.copyOf(tokens))
        return other
    }

    /** Terminates passes from another thread, with [PassTerminatedException]; false permits them again. */
    open fun terminate(now: Boolean) {
        terminated = now
        turns.look()
    }

    /** A cache with the keys and values of the first [tokens] of this one. */
    protected abstract fun copy(tokens: Int): Engine

    protected abstract fun run(chunk: IntArray, rows: IntArray): Logits
}
