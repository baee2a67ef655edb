package inversespec.edge.decode

import inversespec.edge.AnchorSet
import inversespec.edge.ContextException
import inversespec.edge.FillOptions
import inversespec.edge.Source
import inversespec.edge.Stop
import inversespec.edge.UsageException
import inversespec.edge.engine.Engine
import inversespec.edge.engine.Logits
import inversespec.edge.engine.PassTerminated
import kotlin.math.exp

/** What a run cost; the fields of [inversespec.edge.FillStats] that decoding knows. Seconds are wall time. */
internal class Costs {
    var passes = 0
    var reused = 0
    var tokens = 0
    var prefill = 0.0
    var total = 0.0
    var agreement: Double? = null
    var stop = Stop.CANCELLED
}

/**
 * Forced decoding: anchors at their places whatever the model says, greedy tokens in the gaps (section 3.2).
 *
 * Knows which tokens are known, which have to be predicted, and in how few passes that goes: one for the prompt
 * with the leading anchors, then one for each gap token, the anchors behind a gap riding with its last token.
 * Does not know when an answer ends ([Ending]), text, payload bytes or what runs the model.
 *
 * @param cancelled asked before every pass and after every token.
 * @param onToken gets id, position, source and log probability, NaN where none was asked for.
 */
internal class Forced(
    private val engine: Engine,
    private val prompt: IntArray,
    anchors: AnchorSet,
    private val options: FillOptions,
    private val cancelled: () -> Boolean,
    private val onToken: (Int, Int, Source, Double) -> Unit,
) {
    private val rule: Ending
    private val eos = anchors.contract.eosIds.toIntArray()
    private val anchors = anchors.positions.zip(anchors.ids).toMap()
    private val costs = Costs()
    private var started = 0L
    private var scored = 0
    private var score = 0.0

    /** The prompt and every token of the answer so far. */
    private val text: IntArray
    private var size = prompt.size

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
        rule = Ending.of(anchors, engine.context - prompt.size, options.maxTokens)
        text = prompt.copyOf(prompt.size + maxOf(rule.end, 0))
    }

    /** Where the next token goes, 0-based in the answer. */
    private val position: Int get() = size - prompt.size

    /** Decodes to the end, or to where it is cancelled; greedy, so the same input gives the same tokens. */
    fun run(): Costs {
        started = System.nanoTime()
        try {
            if (options.echoPrompt) {
                for ((index, id) in prompt.withIndex()) onToken(id, index - prompt.size, Source.PROMPT, Double.NaN)
            }
            costs.stop = answer()
        } catch (stopped: Cancelled) {
            costs.stop = Stop.CANCELLED
        } catch (stopped: PassTerminated) {
            costs.stop = Stop.CANCELLED
        }
        costs.total = seconds()
        costs.tokens = position
        costs.agreement = if (scored > 0) exp(score / scored) else null
        return costs
    }

    /** Rounds of: run what is pending with what is known next, emit it, predict one token more. */
    private fun answer(): Stop {
        // The last token always runs, for it predicts the next.
        val reused = minOf(commonPrefix(), size - 1)
        engine.rewind(reused)
        costs.reused = reused
        var pending = text.copyOfRange(reused, size)
        while (position < rule.end) {
            val known = ArrayList<Int>()
            while (position + known.size < rule.end) known.add(anchors[position + known.size] ?: break)
            val open = position + known.size < rule.end
            val first = pending.size - 1 // the row that predicts the first of them
            val rows = (if (options.scoreAnchors) known.indices.toList() else emptyList()) +
                (if (open) listOf(known.size) else emptyList())
            val passes = Passes(pending + known, rows.map { first + it })
            for (id in known) {
                if (options.scoreAnchors) {
                    val logProb = passes.next { logits, row -> logits.logProb(row, id) }
                    scored++
                    score += logProb
                    emit(id, Source.ANCHOR, logProb)
                } else {
                    emit(id, Source.ANCHOR, Double.NaN)
                }
            }
            if (!open) continue
            val (token, logProb) = passes.next(::greedy) ?: return Stop.END_TOKEN
            emit(token, Source.FILL, logProb)
            pending = intArrayOf(token)
        }
        return rule.stop
    }

    /**
     * Runs ids and gives the logits of the wanted rows one after the other. Lazy: what can be emitted without a
     * row is emitted before the pass. What comes after the last wanted row is not run.
     */
    private inner class Passes(private val ids: IntArray, private val rows: List<Int>) {
        private val chunks = chunks(rows.lastOrNull()?.plus(1) ?: 0, rows, options.maxChunk, options.maxRows).iterator()
        private var wanted = 0
        private var at = 0
        private lateinit var logits: Logits

        fun <T> next(read: (Logits, Int) -> T): T {
            while (at == wanted) {
                if (cancelled()) throw Cancelled()
                val chunk = chunks.next()
                logits = engine.append(ids.copyOfRange(chunk.start, chunk.stop), chunk.rows)
                costs.passes++
                wanted = chunk.rows.size
                at = 0
                if (wanted > 0 && costs.prefill == 0.0) costs.prefill = seconds()
            }
            return read(logits, at++)
        }
    }

    private fun emit(id: Int, source: Source, logProb: Double) {
        val position = position
        text[size++] = id
        onToken(id, position, source, logProb)
        if (cancelled()) throw Cancelled()
    }

    /** The likeliest token and its log probability, or null where that ends the answer. */
    private fun greedy(logits: Logits, row: Int): Pair<Int, Double>? {
        val best = logits.argmax(row)
        if (best in eos && position >= rule.hold) return null
        val token = if (best in eos) logits.argmax(row, eos) else best
        return token to logits.logProb(row, token, best)
    }

    private fun commonPrefix(): Int {
        val most = minOf(engine.length, size)
        return (0 until most).firstOrNull { engine.token(it) != text[it] } ?: most
    }

    private fun seconds(): Double = (System.nanoTime() - started) / 1e9

    /** Ends the rounds from wherever they are. */
    private class Cancelled : RuntimeException()

    /** One pass: ids from start to before stop, and the wanted rows counted from start. */
    internal class Chunk(val start: Int, val stop: Int, val rows: IntArray)

    companion object {
        /** Cuts [size] tokens into passes within both bounds. */
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
