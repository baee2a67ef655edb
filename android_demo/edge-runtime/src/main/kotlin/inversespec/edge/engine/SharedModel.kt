package inversespec.edge.engine

import inversespec.edge.CancelSignal
import inversespec.edge.EngineException

/**
 * One loaded model for any number of callers. Each has a KV cache of its own, so none sees another's text; the passes of
 * all take turns. A cache that is given back waits for a text that continues it. Thread-safe.
 *
 * @param weights what all caches run on; freed by [close]. [first]: a cache over them.
 */
internal class SharedModel(private val weights: AutoCloseable, private val first: Engine) : AutoCloseable {
    private val waiting = arrayListOf(first) // the latest is the last
    private var closed = false

    /**
     * Gives [body] an engine whose cache begins with what any that waits has of the start of [text]. [cancel] terminates
     * its passes. After an error the cache is not used again.
     */
    fun <T> lease(text: IntArray, cancel: CancelSignal, body: (Engine) -> T): T {
        val engine = taken(text)
        var done = false
        try {
            val found = cancel.during({ engine.terminate(true) }) { body(engine) }
            done = true
            return found
        } finally {
            if (done) giveBack(engine) else engine.close()
        }
    }

    @Synchronized
    private fun taken(text: IntArray): Engine {
        if (closed) throw EngineException(Turns.CLOSED)
        val best = waiting.asReversed().maxByOrNull { it.commonPrefix(text, text.size) } ?: return first.fork(0)
        val shared = best.commonPrefix(text, text.size)
        // It belongs to a conversation that may go on.
        if (best.length - shared > MAX_CUT) return best.fork(shared)
        waiting.remove(best)
        return best
    }

    @Synchronized
    private fun giveBack(engine: Engine) {
        engine.terminate(false)
        waiting.add(engine)
        while (closed && waiting.isNotEmpty() || waiting.size > 1 && isTooMuch()) waiting.removeAt(0).close()
    }

    private fun isTooMuch() = waiting.size > MAX_WAITING || waiting.sumOf { it.cacheBytes } > MAX_BYTES

    /** Waits for the passes that run, and frees the weights and the caches that wait; the others follow when they end. */
    override fun close() {
        first.turns.close()
        synchronized(this) {
            if (closed) return
            closed = true
            waiting.forEach(Engine::close)
            waiting.clear()
            weights.close()
        }
    }

    companion object {
        /** Most caches that wait. */
        const val MAX_WAITING = 16

        /** Most bytes of caches that wait, but for the latest; at the shape of Qwen2.5-0.5B some 2,700 tokens. */
        const val MAX_BYTES = 64L shl 20

        /** Most tokens that a cache loses to another text; one that would lose more is copied. */
        const val MAX_CUT = 8
    }
}
