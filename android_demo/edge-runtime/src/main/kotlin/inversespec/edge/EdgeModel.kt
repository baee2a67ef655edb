package inversespec.edge

import inversespec.edge.bundle.BundleFolder
import inversespec.edge.decode.Forced
import inversespec.edge.engine.Engine
import inversespec.edge.engine.OrtEngine
import inversespec.edge.engine.PassTerminated
import inversespec.edge.engine.Threads
import inversespec.edge.payload.Wire
import inversespec.edge.text.ChatTemplate
import inversespec.edge.text.TextStream
import inversespec.edge.text.Tokenizer
import java.io.File
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock
import kotlin.random.Random

/**
 * A loaded model, ready to turn payloads into text.
 *
 * ```kotlin
 * EdgeModel.open(File("edge_runtime/bundles/tiny-qwen")).use { model ->
 *     val stats = model.fill(File("payload.bin").readBytes(), prompt = null) { token -> print(token.text) }
 *     println("${stats.tail}\n${stats.passes} passes, agreement ${stats.agreement}")
 * }
 * ```
 *
 * Opening and every call block, so they belong on a thread of their own (Dispatchers.IO, an Executor), never on
 * the main thread. Calls from several threads wait for each other. Nothing here opens a network connection.
 *
 * @property info what the bundle says, with the variant that is open.
 * @property threads number of threads the model runs on.
 */
class EdgeModel internal constructor(
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
    private var running: Cancel? = null

    /**
     * Finishes the answer whose anchors a payload carries; without a payload it writes the whole answer.
     *
     * Greedy, so the same input gives the same tokens. What the prompt shares with the call before is not run
     * again. Where [onToken] throws, that is thrown on and the model stays ready.
     *
     * @param payload the bytes as they came; null for none.
     * @param prompt the user's prompt; may be null where the payload carries it.
     * @param cancel ends the answer early: the stats say [Stop.CANCELLED].
     * @param onToken called on the calling thread with each token as soon as it is known.
     * @throws PayloadException for a payload that cannot be used, [UsageException] for a prompt that is missing
     *   or not the payload's, [ContextException] where prompt and anchors do not fit the model's context,
     *   [EngineException] where the model fails or is closed.
     */
    fun fill(
        payload: ByteArray?,
        prompt: String?,
        cancel: Cancel = Cancel(),
        options: FillOptions = FillOptions(),
        onToken: (Token) -> Unit,
    ): FillStats = exclusive(cancel) {
        val (ids, anchors) = read(payload, prompt)
        val stream = TextStream(tokenizer)
        val stopped = { cancel.isCancelled || closed }
        val costs = Forced(engine, ids, anchors, options, stopped) { id, position, source, logProb ->
            val text = if (source == Source.PROMPT) "" else stream.push(id)
            onToken(Token(id, position, source, logProb.toFloat(), text))
        }.run()
        FillStats(
            passes = costs.passes,
            anchors = anchors.size,
            promptTokens = ids.size,
            tokens = costs.tokens,
            loadSeconds = loadSeconds,
            prefillSeconds = costs.prefill,
            fillSeconds = costs.total - costs.prefill,
            agreement = costs.agreement,
            reused = minOf(costs.reused, ids.size),
            stop = costs.stop,
            tail = stream.flush(),
        )
    }

    /** Writes the whole answer on this device: [fill] without a payload. */
    fun generate(
        prompt: String,
        maxTokens: Int? = null,
        cancel: Cancel = Cancel(),
        onToken: (Token) -> Unit,
    ): FillStats = fill(null, prompt, cancel, FillOptions(maxTokens = maxTokens), onToken)

    /**
     * What passes of 1, 2, 4... 64 known tokens cost on this device, as far as they fit the context; the first is
     * the decode rate. Each size is run [repeat] times after one that does not count.
     *
     * @param onCost called with each point as it is known.
     * @return the points, fewer where cancelled.
     */
    fun bench(repeat: Int = 5, cancel: Cancel = Cancel(), onCost: (ChunkCost) -> Unit = {}): List<ChunkCost> {
        if (repeat < 1) throw UsageException("repeat: expected 1 or more, found $repeat")
        return exclusive(cancel) {
            val costs = ArrayList<ChunkCost>()
            try {
                measure(repeat, cancel) { cost ->
                    costs.add(cost)
                    onCost(cost)
                }
            } catch (stopped: PassTerminated) {
                // What was measured before still holds.
            }
            engine.rewind(0)
            costs
        }
    }

    private fun measure(repeat: Int, cancel: Cancel, onCost: (ChunkCost) -> Unit) {
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
            onCost(ChunkCost(size, times.drop(1).sorted()[repeat / 2] / 1e6))
        }
    }

    /** Frees the model's memory; waits for a running call, which ends as if cancelled. May be called twice. */
    override fun close() {
        closed = true
        running?.cancel()
        lock.withLock { engine.close() }
    }

    /** Runs one call at a time, with the engine told when it is to end early. */
    private fun <T> exclusive(cancel: Cancel, body: () -> T): T = lock.withLock {
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

    /** The ids of the prompt in the chat template, and the anchors. */
    private fun read(payload: ByteArray?, prompt: String?): Pair<IntArray, AnchorSet> {
        val contract = info.contract
        if (payload == null) {
            if (prompt == null) throw UsageException("expected a payload or a prompt, found neither")
            return promptIds(prompt) to AnchorSet(emptyList(), emptyList(), minOf(info.context, MAX_CANVAS), contract)
        }
        val header = Wire.peek(payload)
        val text = prompt ?: header.prompt
        if (text == null) {
            // A payload that cannot be used at all is refused for that, not for its prompt.
            try {
                Wire.decode(payload, contract, null, tokenizer, null)
            } catch (expected: PromptRequiredException) {
                // The one below says what to do.
            }
            throw UsageException("the payload does not carry its prompt: give it beside the payload")
        }
        if (header.prompt != null && header.prompt != text) {
            throw UsageException(
                "the payload carries another prompt (${header.prompt.take(60)}) than the one given " +
                    "(${text.take(60)}): leave the prompt out, or ask for another payload",
            )
        }
        val ids = promptIds(text)
        return ids to Wire.decode(payload, contract, ids, tokenizer, null)
    }

    private fun promptIds(prompt: String): IntArray = tokenizer.encode(template.renderPrompt(prompt))

    companion object {
        private const val BENCH_DEPTH = 64
        private val BENCH_CHUNKS = listOf(1, 2, 4, 8, 16, 32, 64)

        /**
         * Opens a bundle folder and loads its model.
         *
         * @throws BundleException where the folder is no whole bundle, [EngineException] where the model cannot
         *   be loaded.
         */
        fun open(dir: File, options: Options = Options()): EdgeModel {
            val started = System.nanoTime()
            val folder = BundleFolder.open(dir)
            val variant = options.variant ?: folder.manifest.defaultVariant
            val info = folder.info(variant)
            if (options.verifyHashes) folder.verify(variant, Cancel()) { _, _ -> }
            val tokenizer = folder.tokenizer()
            val template = folder.template()
            val threads = options.threads ?: Threads.performanceCores()
            if (threads < 1) throw UsageException("threads: expected 1 or more, found $threads")
            val engine = OrtEngine(folder.graph(variant), folder.manifest.model, info.context, threads)
            return EdgeModel(info, threads, tokenizer, template, engine, (System.nanoTime() - started) / 1e9)
        }
    }
}
