package inversespec.edge

import inversespec.edge.bundle.Bundle
import inversespec.edge.decode.ForcedDecoder
import inversespec.edge.engine.Engine
import inversespec.edge.engine.OrtEngine
import inversespec.edge.engine.PassTerminatedException
import inversespec.edge.payload.Wire
import inversespec.edge.payload.openPayload
import inversespec.edge.text.ChatTemplate
import inversespec.edge.text.TextStream
import inversespec.edge.text.Tokenizer
import java.io.File
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlin.random.Random

/**
 * A loaded edge model that turns payloads into text.
 *
 * ```kotlin
 * EdgeRuntime.open(File("edge_runtime/bundles/tiny-qwen")).use { runtime ->
 *     val stats = runtime.fill(File("payload.bin").readBytes(), prompt = null) { token -> print(token.text) }
 *     println("${stats.tail}\n${stats.passes} passes, agreement ${stats.agreement}")
 * }
 * ```
 *
 * Opening and all calls block: use a background thread (Dispatchers.IO, an Executor), never the main thread. Calls
 * from several threads are serialised. No network connection is opened.
 *
 * @property info description of the bundle, with the open variant.
 * @property threads number of threads that the model runs on.
 */
class EdgeRuntime internal constructor(
    val info: BundleInfo,
    val threads: Int,
    private val tokenizer: Tokenizer,
    private val template: ChatTemplate,
    private val engine: Engine,
    private val loadSeconds: Double,
) : AutoCloseable {
    private val lock = ReentrantLock()

    @Volatile
    private var closed = false

    @Volatile
    private var running: CancelSignal? = null

    /**
     * Generates the answer around the anchors of a payload; without a payload, generates the whole answer.
     *
     * Decoding is greedy, so equal input gives equal tokens. The prefix that the prompt shares with the previous
     * call is reused from the cache. An exception from [onToken] propagates and leaves the model usable.
     *
     * @param payload the received bytes; null for none.
     * @param prompt the user's prompt; may be null where the payload carries it.
     * @param cancel ends the answer early, with [Stop.CANCELLED] in the returned statistics.
     * @param onToken called on the calling thread with each token as soon as it is known.
     * @throws PayloadException for an invalid payload, [UsageException] for a prompt that is missing or differs
     *   from the payload's, [ContextException] where prompt and anchors exceed the model's context,
     *   [EngineException] where the model fails or is closed.
     */
    fun fill(
        payload: ByteArray?,
        prompt: String?,
        cancel: CancelSignal = CancelSignal(),
        options: FillOptions = FillOptions(),
        onToken: (Token) -> Unit,
    ): FillStats = exclusive(cancel) {
        val (ids, anchors) = request(payload, prompt)
        val stream = TextStream(tokenizer)
        val stopped = { cancel.isCancelled || closed }
        val decoded = ForcedDecoder(engine, ids, anchors, options, stopped) { id, position, source, logProb ->
            val text = if (source == Source.PROMPT) "" else stream.push(id)
            onToken(Token(id, position, source, logProb.toFloat(), text))
        }.run()
        FillStats(
            passes = decoded.passes,
            anchors = anchors.size,
            promptTokens = ids.size,
            tokens = decoded.tokens,
            loadSeconds = loadSeconds,
            prefillSeconds = decoded.prefillSeconds,
            fillSeconds = decoded.totalSeconds - decoded.prefillSeconds,
            agreement = decoded.agreement,
            reused = minOf(decoded.reused, ids.size),
            stop = decoded.stop,
            tail = stream.flush(),
        )
    }

    /** Generates a whole answer on the device: [fill] without a payload. */
    fun generate(
        prompt: String,
        maxTokens: Int? = null,
        cancel: CancelSignal = CancelSignal(),
        onToken: (Token) -> Unit,
    ): FillStats = fill(null, prompt, cancel, FillOptions(maxTokens = maxTokens), onToken)

    /**
     * Measures the duration of passes over 1, 2, 4... 64 known tokens, as far as they fit the context. Each size is
     * run [repeat] times after one warm-up pass.
     *
     * @param onCost called with each result as it is measured.
     * @return the results, fewer where cancelled.
     */
    fun bench(repeat: Int = 5, cancel: CancelSignal = CancelSignal(), onCost: (PassCost) -> Unit = {}): List<PassCost> {
        if (repeat < 1) throw UsageException("repeat: expected 1 or more, found $repeat")
        return exclusive(cancel) {
            val costs = ArrayList<PassCost>()
            try {
                measure(repeat, cancel) { cost ->
                    costs.add(cost)
                    onCost(cost)
                }
            } catch (stopped: PassTerminatedException) {
                // The results measured so far are returned.
            }
            engine.rewind(0)
            costs
        }
    }

    private fun measure(repeat: Int, cancel: CancelSignal, onCost: (PassCost) -> Unit) {
        val random = Random(0)
        val depth = minOf(BENCH_DEPTH, info.context / 2)
        val ids = IntArray(info.context) { random.nextInt(info.contract.vocabSize) }
        engine.rewind(0)
        engine.append(ids.copyOf(depth), intArrayOf(depth - 1))
        for (size in BENCH_CHUNKS.filter { depth + it <= info.context }) {
            val chunk = ids.copyOfRange(depth, depth + size)
            val times = LongArray(repeat + 1) {
                if (cancel.isCancelled || closed) return
                engine.rewind(depth)
                val before = System.nanoTime()
                engine.append(chunk, intArrayOf(size - 1)).argmax(0)
                System.nanoTime() - before
            }
            onCost(PassCost(size, times.drop(1).sorted()[repeat / 2] / 1e6))
        }
    }

    /** Cancels a running call, waits for its end and frees the model's memory. Idempotent. */
    override fun close() {
        closed = true
        running?.cancel()
        lock.withLock { engine.close() }
    }

    /** Runs one call at a time; cancellation terminates the running pass of the engine. */
    private fun <T> exclusive(cancel: CancelSignal, body: () -> T): T = lock.withLock {
        if (running != null) throw UsageException("expected a call at a time, found one from within onToken")
        running = cancel
        try {
            if (closed) throw EngineException("expected an open model, found one that was closed. Open it again.")
            engine.terminate(false)
            cancel.during({ engine.terminate(true) }, body)
        } finally {
            running = null
        }
    }

    /** Prompt ids, with the chat template, and the anchors. */
    private fun request(payload: ByteArray?, prompt: String?): Pair<IntArray, AnchorSet> {
        val contract = info.contract
        if (payload == null) {
            if (prompt == null) throw UsageException("expected a payload or a prompt, found neither")
            return promptIds(prompt) to AnchorSet.empty(minOf(info.context, MAX_CANVAS), contract)
        }
        val carried = openPayload(payload).header.extras.prompt
        val text = prompt ?: carried
        if (text == null) {
            // An invalid payload is refused as such, not for its prompt.
            try {
                Wire.decode(payload, Shared(contract, null, tokenizer))
            } catch (expected: PromptRequiredException) {
                // The exception below states the remedy.
            }
            throw UsageException("the payload does not carry its prompt: give it beside the payload")
        }
        if (carried != null && carried != text) {
            throw UsageException(
                "the payload carries another prompt (${carried.take(60)}) than the one given " +
                    "(${text.take(60)}): leave the prompt out, or ask for another payload",
            )
        }
        val ids = promptIds(text)
        return ids to Wire.decode(payload, Shared(contract, ids, tokenizer))
    }

    private fun promptIds(prompt: String): IntArray = tokenizer.encode(template.renderPrompt(prompt))

    companion object {
        private const val BENCH_DEPTH = 64
        private val BENCH_CHUNKS = listOf(1, 2, 4, 8, 16, 32, 64)

        /**
         * Opens a bundle folder and loads its model.
         *
         * @throws BundleException where the folder is no complete bundle, [EngineException] where the model cannot
         *   be loaded.
         */
        fun open(dir: File, options: RuntimeOptions = RuntimeOptions()): EdgeRuntime {
            val started = System.nanoTime()
            val bundle = Bundle.open(dir)
            val variant = options.variant ?: bundle.manifest.defaultVariant
            val info = bundle.info(variant)
            if (options.verifyHashes) bundle.verify(variant, CancelSignal()) { _, _ -> }
            val tokenizer = bundle.tokenizer()
            val template = bundle.template()
            val threads = options.threads ?: SystemInfo.performanceCores()
            if (threads < 1) throw UsageException("threads: expected 1 or more, found $threads")
            val engine = OrtEngine(bundle.graph(variant), bundle.manifest.model, info.context, threads)
            return EdgeRuntime(info, threads, tokenizer, template, engine, (System.nanoTime() - started) / 1e9)
        }
    }
}
