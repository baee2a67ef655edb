package inversespec.edge

import inversespec.edge.bundle.Bundle
import inversespec.edge.decode.*
import inversespec.edge.engine.*
import inversespec.edge.payload.Wire
import inversespec.edge.payload.openPayload
import inversespec.edge.text.PromptForm
import java.io.File
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
 * Opening and all calls block: use a background thread (Dispatchers.IO, an Executor), never the main thread. It takes any
 * number of callers at once, and each gets the text that it would get alone: answers have caches of their own, and their
 * passes take turns in the order in which they are asked for. An answer reuses what an earlier one has read of its prompt.
 * No network connection is opened, except by [answer] to the service it is given.
 *
 * @property info description of the bundle, with the open variant.
 * @property threads number of threads that the model runs on.
 */
class EdgeRuntime internal constructor(
    val info: BundleInfo,
    val threads: Int,
    private val model: Model,
    private val loadSeconds: Double,
) : AutoCloseable {
    private val running = ArrayList<CancelSignal>()
    private var closed = false

    /**
     * Generates the answer around the anchors of a payload; without a payload, generates the whole answer.
     *
     * Equal input gives equal tokens, also with [FillOptions.sampling]. An exception from [onToken] propagates and leaves the
     * model usable.
     *
     * A payload of codec predictive is decoded while its tokens are emitted, one pass each, and checked at its end:
     * where [FingerprintException] is thrown, the tokens so far are wrong, and a payload of codec compact can be used.
     *
     * @param payload the received bytes; null for none.
     * @param prompt the user's question; may be null where the payload carries it.
     * @param cancel ends the answer early, with [Stop.CANCELLED] in the returned statistics.
     * @param onToken called on the calling thread with each token as soon as it is known.
     * @throws PayloadException for an invalid payload, [UsageException] for a prompt that is missing or differs
     *   from the payload's, [ContextException] where prompt and anchors exceed the model's context,
     *   [EngineException] where the model fails or is closed.
     */
    @JvmOverloads
    fun fill(
        payload: ByteArray?,
        prompt: String?,
        cancel: CancelSignal = CancelSignal(),
        options: FillOptions = FillOptions(),
        onToken: (Token) -> Unit,
    ): FillStats = fillConversation(payload, prompt?.let { ChatMessage.prompt(it) }, cancel, options, onToken)

    /** [fill] for a conversation of several [messages], up to the answer. */
    @JvmOverloads
    fun fill(
        payload: ByteArray?,
        messages: List<ChatMessage>,
        cancel: CancelSignal = CancelSignal(),
        options: FillOptions = FillOptions(),
        onToken: (Token) -> Unit,
    ): FillStats = fillConversation(payload, messages, cancel, options, onToken)

    private fun fillConversation(
        payload: ByteArray?,
        messages: List<ChatMessage>?,
        cancel: CancelSignal,
        options: FillOptions,
        onToken: (Token) -> Unit,
    ): FillStats = call(cancel) {
        val started = System.nanoTime()
        val transcript = Transcript(model.tokenizer) { if (it is Token) onToken(it) }
        val costs = Costs()
        val ids = model.promptIds(messagesOf(payload, messages))
        val codec = payload?.let { openPayload(it).header.codec }
        if (payload != null && codec == Codec.PREDICTIVE) {
            val anchors = model.fillPredictive(payload, ids, options, transcript, costs, cancel)
            stats(transcript, costs, anchors?.size ?: 0, ids.size, started, doubtOf(payload))
        } else {
            val anchors = if (payload == null) model.noAnchors() else model.decode(payload, ids, null)
            model.fill(ids, anchors, options, transcript, costs, cancel, model.of(codec))
            stats(transcript, costs, anchors.size, ids.size, started, payload?.let(::doubtOf))
        }
    }

    /**
     * Generates the answer to a prompt with an anchor service. With [ServiceOptions.stream] it begins at once and is
     * refined with every payload: [Retract] takes back tokens that a payload contradicts, and the text in the end is
     * the one that the last payload would have given from the start. Otherwise it waits for the payload.
     *
     * Where the service cannot be reached the device answers alone: [ServiceFailed] says so, and
     * [ServiceReport.failure] in the statistics. A predictive payload that this device cannot decode is replaced by a
     * compact one: [CompactRequested].
     *
     * @param onEvent called on the calling thread, with tokens as soon as they are known.
     * @throws CloudRefusedException where the service refuses the request, [CloudUnavailableException] where it cannot
     *   be reached and [ServiceOptions.fallback] is off, and what [fill] throws.
     */
    @JvmOverloads
    fun answer(
        client: ServiceClient,
        prompt: String,
        service: ServiceOptions = ServiceOptions(),
        cancel: CancelSignal = CancelSignal(),
        options: FillOptions = FillOptions(),
        onEvent: (AnswerEvent) -> Unit,
    ): FillStats = answer(client, ChatMessage.prompt(prompt), service, cancel, options, onEvent)

    /** [answer] to a conversation of several [messages], up to the answer. */
    @JvmOverloads
    fun answer(
        client: ServiceClient,
        messages: List<ChatMessage>,
        service: ServiceOptions = ServiceOptions(),
        cancel: CancelSignal = CancelSignal(),
        options: FillOptions = FillOptions(),
        onEvent: (AnswerEvent) -> Unit,
    ): FillStats = answer(client, messages, service, cancel, options, null, onEvent)

    /** [answer]; where [doubts] is given the service is asked only once it says so of the device's tokens. */
    internal fun answer(
        client: ServiceClient,
        messages: List<ChatMessage>,
        service: ServiceOptions,
        cancel: CancelSignal,
        options: FillOptions,
        doubts: ((List<Token>) -> Boolean)?,
        onEvent: (AnswerEvent) -> Unit,
    ): FillStats = call(cancel) {
        val started = System.nanoTime()
        val answer = OnlineAnswer(model, client, messages, service, options, cancel, doubts, onEvent)
        answer.run()
        stats(answer.transcript, answer.costs, answer.anchors.size, answer.promptTokens, started, answer.report.doubt)
            .copy(service = answer.report)
    }

    internal fun promptTokens(messages: List<ChatMessage>): Int = model.promptIds(messages).size

    private fun stats(
        transcript: Transcript,
        costs: Costs,
        anchors: Int,
        promptTokens: Int,
        started: Long,
        doubt: Double?,
    ): FillStats {
        val tail = transcript.finish()
        return FillStats(
            passes = costs.passes,
            anchors = anchors,
            promptTokens = promptTokens,
            tokens = transcript.tokens.size,
            loadSeconds = loadSeconds,
            prefillSeconds = costs.prefillSeconds,
            fillSeconds = maxOf(0.0, (System.nanoTime() - started) / 1e9 - costs.prefillSeconds),
            agreement = transcript.agreement,
            reused = costs.reused.coerceIn(0, promptTokens),
            stop = costs.stop,
            tail = tail,
            doubt = doubt,
            notSure = doubt?.let { found -> info.notSureFrom?.let { found >= it } },
        )
    }

    private fun doubtOf(payload: ByteArray): Double? = openPayload(payload).header.extras.doubt

    /** Generates a whole answer on the device: [fill] without a payload. */
    @JvmOverloads
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
    @JvmOverloads
    fun bench(repeat: Int = 5, cancel: CancelSignal = CancelSignal(), onCost: (PassCost) -> Unit = {}): List<PassCost> {
        if (repeat < 1) throw UsageException("repeat: expected 1 or more, found $repeat")
        val costs = ArrayList<PassCost>()
        call(cancel) {
            model.shared.lease(IntArray(0), cancel) { engine ->
                try {
                    measure(engine, repeat) { cost ->
                        costs.add(cost)
                        onCost(cost)
                        cancel.isCancelled
                    }
                } catch (stopped: PassTerminatedException) {
                    // The results measured so far are returned.
                }
                engine.rewind(0)
            }
        }
        return costs
    }

    /** Gives [onCost] each result, until it returns true. */
    private fun measure(engine: Engine, repeat: Int, onCost: (PassCost) -> Boolean) {
        val random = Random(0)
        val depth = minOf(BENCH_DEPTH, info.context / 2)
        val ids = IntArray(depth + BENCH_CHUNKS.last()) { random.nextInt(info.contract.vocabSize) }
        engine.rewind(0)
        engine.append(ids.copyOf(depth), intArrayOf(depth - 1))
        for (size in BENCH_CHUNKS.filter { depth + it <= info.context }) {
            val chunk = ids.copyOfRange(depth, depth + size)
            val times = LongArray(repeat + 1) {
                engine.rewind(depth)
                val before = System.nanoTime()
                engine.append(chunk, intArrayOf(size - 1)).argmax(0)
                System.nanoTime() - before
            }
            if (onCost(PassCost(size, times.drop(1).sorted()[repeat / 2] / 1e6))) return
        }
    }

    /**
     * Cancels the calls that run, waits for the passes that do, and frees the model's memory; a call whose callback does
     * not return keeps its own cache until it does. Idempotent.
     */
    override fun close() {
        val calls = synchronized(running) {
            closed = true
            running.toList()
        }
        calls.forEach(CancelSignal::cancel)
        model.close()
    }

    /** Runs a call, which [close] cancels. */
    private fun <T> call(cancel: CancelSignal, body: () -> T): T {
        synchronized(running) {
            if (closed) throw EngineException(Turns.CLOSED)
            running.add(cancel)
        }
        try {
            return body()
        } finally {
            synchronized(running) { running.remove(cancel) }
        }
    }

    /** The conversation given, or the question that the payload carries. */
    private fun messagesOf(payload: ByteArray?, given: List<ChatMessage>?): List<ChatMessage> {
        if (payload == null) {
            return given ?: throw UsageException("expected a payload or a prompt, found neither")
        }
        val header = openPayload(payload).header
        val carried = header.extras.prompt?.let { ChatMessage.prompt(it) }
        val messages = given ?: carried
        if (messages == null) {
            // An invalid payload is refused as such, not for its prompt.
            try {
                if (!header.codec.bound) {
                    Wire.decode(payload, Shared(info.contract, null, model.tokenizer))
                }
            } catch (expected: PromptRequiredException) {
                // The exception below states the remedy.
            }
            throw UsageException("the payload does not carry its prompt: give it beside the payload")
        }
        if (carried != null && carried != messages) {
            throw UsageException(
                "the payload carries another prompt (${carried.last().content.take(60)}) than the one given " +
                    "(${messages.lastOrNull()?.content?.take(60)}): leave the prompt out, or ask for another payload",
            )
        }
        return messages
    }

    companion object {
        private const val BENCH_DEPTH = 64
        private val BENCH_CHUNKS = listOf(1, 2, 4, 8, 16, 32, 64)

        /**
         * Opens a bundle folder and loads its model.
         *
         * @throws BundleException where the folder is no complete bundle, [EngineException] where the model cannot
         *   be loaded.
         */
        @JvmStatic
        @JvmOverloads
        fun open(dir: File, options: RuntimeOptions = RuntimeOptions()): EdgeRuntime {
            val started = System.nanoTime()
            val bundle = Bundle.open(dir)
            val variant = options.variant ?: bundle.manifest.defaultVariant
            val info = bundle.info(variant)
            if (options.verifyHashes) bundle.verify(variant, CancelSignal()) { _, _ -> }
            val tokenizer = bundle.tokenizer()
            val form = PromptForm(tokenizer, bundle.template())
            if (options.engines < 1) throw UsageException("engines: expected 1 or more, found ${options.engines}")
            val cores = options.threads ?: SystemInfo.performanceCores()
            if (cores < 1) throw UsageException("threads: expected 1 or more, found $cores")
            val threads = maxOf(1, cores / options.engines)
            fun load(portable: Boolean): SharedModel {
                val graph = OrtGraph(bundle.graph(variant, portable), bundle.manifest.model, threads)
                return SharedModel(graph, OrtEngine(graph, info.context, Turns(options.engines)))
            }
            val fingerprint = bundle.manifest.fingerprint(variant)
            val model = Model(info, tokenizer, form, load(false), fingerprint) { load(true) }
            return EdgeRuntime(info, threads, model, (System.nanoTime() - started) / 1e9)
        }
    }
}
