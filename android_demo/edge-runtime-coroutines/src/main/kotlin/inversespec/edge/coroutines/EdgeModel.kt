package inversespec.edge.coroutines

import inversespec.edge.*
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.channels.Channel
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.buffer
import kotlinx.coroutines.flow.cancellable
import kotlinx.coroutines.flow.channelFlow
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import java.io.File

/**
 * An open model for coroutines: one for all requests, whose passes take turns.
 *
 * ```kotlin
 * EdgeModel.open(File(filesDir, "bundles/tiny-qwen")).use { model ->
 *     model.answer(client, prompt, ServiceOptions(stream = true)).collect { event -> show(event) }
 *     println(model.fill(payload, prompt).complete().text)
 * }
 * ```
 *
 * Each Flow is cold: it answers once per collector. The last event is [Finished]. Cancelling a collector ends its running
 * pass and returns once that has ended. A slow collector holds nobody up: what it has not received yet is kept for it.
 * Errors are those of [EdgeRuntime].
 *
 * @param runtime the callback API; this object closes it.
 * @param dispatcher runs the blocking calls.
 */
class EdgeModel(
    private val runtime: EdgeRuntime,
    private val dispatcher: CoroutineDispatcher = Dispatchers.IO,
) : AutoCloseable {
    /** Description of the bundle. */
    val info get() = runtime.info

    /** See [EdgeRuntime.fill]. */
    fun fill(payload: ByteArray?, prompt: String?, options: FillOptions = FillOptions()): Flow<AnswerEvent> =
        events { cancel, onEvent -> Finished(runtime.fill(payload, prompt, cancel, options, onEvent)) }

    /** See [EdgeRuntime.fill]. */
    fun fill(
        payload: ByteArray?,
        messages: List<ChatMessage>,
        options: FillOptions = FillOptions(),
    ): Flow<AnswerEvent> = events { cancel, onEvent ->
        Finished(runtime.fill(payload, messages, cancel, options, onEvent))
    }

    /** See [EdgeRuntime.generate]. */
    fun generate(prompt: String, maxTokens: Int? = null): Flow<AnswerEvent> =
        fill(null, prompt, FillOptions(maxTokens = maxTokens))

    /** See [EdgeRuntime.answer]. */
    fun answer(
        client: ServiceClient,
        prompt: String,
        service: ServiceOptions = ServiceOptions(),
        options: FillOptions = FillOptions(),
    ): Flow<AnswerEvent> = answer(client, ChatMessage.prompt(prompt), service, options)

    /** See [EdgeRuntime.answer]. */
    fun answer(
        client: ServiceClient,
        messages: List<ChatMessage>,
        service: ServiceOptions = ServiceOptions(),
        options: FillOptions = FillOptions(),
    ): Flow<AnswerEvent> =
        events { cancel, onEvent -> Finished(runtime.answer(client, messages, service, cancel, options, onEvent)) }

    /** A conversation with this model; its turns are [ask]. */
    fun session(system: String? = null): EdgeSession = EdgeSession(runtime, system)

    /** The session of a file; see [EdgeSession.load]. */
    suspend fun session(file: File): EdgeSession = withContext(dispatcher) { EdgeSession.load(file, runtime) }

    /** Writes a session to a file; see [EdgeSession.save]. */
    suspend fun save(session: EdgeSession, file: File) = withContext(dispatcher) { session.save(file) }

    /**
     * See [EdgeSession.ask]. [Finished.turn] is the answer; of a collector that leaves, what was written so far joins the
     * conversation.
     */
    fun ask(
        session: EdgeSession,
        question: String,
        options: FillOptions = FillOptions(),
        cloud: ServiceClient? = null,
        mode: InferenceMode = if (cloud == null) InferenceMode.ONLY_ON_DEVICE else InferenceMode.PREFER_ON_DEVICE,
        isPrivate: Boolean = false,
    ): Flow<AnswerEvent> = events { cancel, onEvent ->
        val turn = session.ask(question, options, null, cloud, mode, isPrivate, cancel = cancel, onEvent = onEvent)
        Finished(turn.stats, turn)
    }

    /** Ends all answers and frees the model's memory; see [EdgeRuntime.close]. */
    override fun close() = runtime.close()

    private fun events(call: (CancelSignal, (AnswerEvent) -> Unit) -> Finished): Flow<AnswerEvent> = channelFlow {
        val cancel = CancelSignal()
        // An event that nobody receives any more is dropped: the cancellation below is on its way.
        val work = launch(dispatcher) { trySend(call(cancel) { event -> trySend(event) }) }
        try {
            work.join()
        } finally {
            cancel.cancel()
            withContext(NonCancellable) { work.join() }
        }
    }
        .buffer(Channel.UNLIMITED) // nor does a collector that is left without being cancelled hold a thread or [close] up
        .cancellable() // events that wait in the channel do not reach a collector that was cancelled

    companion object {
        /** Opens a bundle folder; see [EdgeRuntime.open]. */
        suspend fun open(
            dir: File,
            options: RuntimeOptions = RuntimeOptions(),
            dispatcher: CoroutineDispatcher = Dispatchers.IO,
        ): EdgeModel = withContext(dispatcher) { EdgeModel(EdgeRuntime.open(dir, options), dispatcher) }
    }
}
