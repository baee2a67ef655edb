package inversespec.edge.decode

import inversespec.edge.*
import inversespec.edge.engine.*

/** Statistics of one decoded answer: the part of [inversespec.edge.FillStats] that decoding measures. Wall time. */
internal class DecodeStats {
    var passes = 0
    var reused = 0
    var tokens = 0
    var prefillSeconds = 0.0
    var totalSeconds = 0.0
    var stop = Stop.CANCELLED
}

/**
 * Forced decoding: anchors at their positions whatever the model predicts, greedy or drawn tokens in the gaps (section
 * 3.2).
 *
 * Responsible for the schedule of passes: one for the prompt and the leading anchors, then one per gap token, where
 * the anchors after a gap share the pass of its last token. Not responsible for the end of the answer ([Ending]),
 * text, payload bytes, or running the model.
 *
 * @param cancelled polled before every pass and after every token.
 * @param answered the first ids of the answer where they are known already; decoding continues after them.
 * @param onToken receives id, position, source and log probability, NaN where it was not computed.
 */
internal class ForcedDecoder(
    private val engine: Engine,
    private val prompt: IntArray,
    anchors: AnchorSet,
    private val options: FillOptions,
    private val cancelled: () -> Boolean,
    answered: IntArray = IntArray(0),
    private val onToken: (Int, Int, Source, Double) -> Unit,
) {
    private val ending: Ending
    private val eos = anchors.contract.eosIds.toIntArray()
    private val anchors = anchors.byPosition
    private val sampler = options.sampling?.takeIf { it.temperature > 0 }?.let { Sampler(it, engine.vocab) }
    private val stats = DecodeStats()
    private var started = 0L

    /** The prompt and every token of the answer so far. */
    private val text: IntArray
    private var size = prompt.size + answered.size

    init {
        if (prompt.isEmpty()) throw UsageException("expected a prompt of at least one token, found none")
        if (prompt.size >= engine.context) {
            throw ContextException(
                "expected a prompt of less than ${engine.context} tokens, found ${prompt.size}. Shorten the prompt.",
            )
        }
        for (value in listOf(options.maxTokens, options.maxChunk, options.maxRows)) {
            if (value != null && value < 1) throw UsageException("options: expected 1 or more, found $options")
        }
        ending = Ending.of(anchors, engine.context - prompt.size, options.maxTokens)
        text = prompt.copyOf(prompt.size + maxOf(ending.end, answered.size))
        answered.copyInto(text, prompt.size)
    }

    /** Position of the next token, 0-based in the answer. */
    private val position: Int get() = size - prompt.size

    /** Decodes to the end or until cancelled. Equal input gives equal tokens. */
    fun run(): DecodeStats {
        started = System.nanoTime()
        try {
            if (options.echoPrompt) {
                for ((index, id) in prompt.withIndex()) onToken(id, index - prompt.size, Source.PROMPT, Double.NaN)
            }
            stats.stop = decode()
        } catch (terminated: PassTerminatedException) {
            stats.stop = Stop.CANCELLED
        }
        stats.totalSeconds = seconds()
        stats.tokens = position
        return stats
    }

    /** Repeats: run the pending and the next known tokens, emit the known ones, predict one token. */
    private fun decode(): Stop {
        // The last token is always run, as it predicts the next.
        val reused = minOf(engine.commonPrefix(text, size), size - 1)
        engine.rewind(reused)
        stats.reused = reused
        var pending = text.copyOfRange(reused, size)
        while (position < ending.end) {
            val known = ArrayList<Int>()
            while (position + known.size < ending.end) known.add(anchors[position + known.size] ?: break)
            val open = position + known.size < ending.end
            val first = pending.size - 1 // the row that predicts the first known token
            val rows = (if (options.scoreAnchors) known.indices.toList() else emptyList()) +
                (if (open) listOf(known.size) else emptyList())
            val passes = Passes(pending + known, rows.map { first + it })
            for (id in known) {
                if (options.scoreAnchors) {
                    emit(id, Source.ANCHOR, passes.next { logits, row -> logits.logProb(row, id) })
                } else {
                    emit(id, Source.ANCHOR, Double.NaN)
                }
            }
            if (!open) continue
            val (token, logProb) = passes.next(::predicted) ?: return Stop.END_TOKEN
            emit(token, Source.FILL, logProb)
            pending = intArrayOf(token)
        }
        return ending.stop
    }

    /**
     * Runs token ids and yields the logits of the requested rows one by one. Lazy, so that tokens that need no row
     * are emitted before the pass. Tokens after the last requested row are not run.
     */
    private inner class Passes(private val ids: IntArray, private val rows: List<Int>) {
        private val chunks = chunks(rows.lastOrNull()?.plus(1) ?: 0, rows, options.maxChunk, options.maxRows).iterator()
        private var wanted = 0
        private var at = 0
        private lateinit var logits: Logits

        fun <T> next(read: (Logits, Int) -> T): T {
            while (at == wanted) {
                if (cancelled()) throw PassTerminatedException()
                val chunk = chunks.next()
                logits = engine.append(ids.copyOfRange(chunk.start, chunk.stop), chunk.rows)
                stats.passes++
                wanted = chunk.rows.size
                at = 0
                if (wanted > 0 && stats.prefillSeconds == 0.0) stats.prefillSeconds = seconds()
            }
            return read(logits, at++)
        }
    }

    private fun emit(id: Int, source: Source, logProb: Double) {
        val position = position
        text[size++] = id
        onToken(id, position, source, logProb)
        if (cancelled()) throw PassTerminatedException()
    }

    /** The next token and its log probability, or null where an end token ends the answer. */
    private fun predicted(logits: Logits, row: Int): Pair<Int, Double>? {
        val best = logits.argmax(row)
        val barred = if (position < ending.eosFrom) eos else NONE
        val token = sampler?.draw(logits, row, barred) ?: if (best in barred) logits.argmax(row, barred) else best
        if (token in eos && barred.isEmpty()) return null
        return token to logits.logProb(row, token, best)
    }

    private fun seconds(): Double = (System.nanoTime() - started) / 1e9

    /** One pass: ids start until stop, and the requested rows relative to start. */
    internal class Chunk(val start: Int, val stop: Int, val rows: IntArray)

    companion object {
        private val NONE = IntArray(0)

        /** Splits [size] tokens into passes within both bounds. */
        fun chunks(size: Int, rows: List<Int>, maxChunk: Int, maxRows: Int): List<Chunk> {
            val result = ArrayList<Chunk>()
            var start = 0
            var taken = 0
            while (start < size) {
                var stop = minOf(start + maxChunk, size)
                if (taken + maxRows < rows.size) stop = minOf(stop, rows[taken + maxRows])
                val wanted = rows.subList(taken, minOf(taken + maxRows, rows.size)).filter { it < stop }
                result.add(Chunk(start, stop, IntArray(wanted.size) { wanted[it] - start }))
                taken += wanted.size
                start = stop
            }
            return result
        }
    }
}
