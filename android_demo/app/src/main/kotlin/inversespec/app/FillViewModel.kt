package inversespec.app

import android.content.Context
import android.net.Uri
import android.os.Handler
import android.os.Looper
import inversespec.edge.AnswerEvent
import inversespec.edge.CancelSignal
import inversespec.edge.CompactRequested
import inversespec.edge.Finished
import inversespec.edge.PayloadReceived
import inversespec.edge.Payloads
import inversespec.edge.Retract
import inversespec.edge.ServiceClient
import inversespec.edge.ServiceFailed
import inversespec.edge.ServiceOptions
import inversespec.edge.Source
import inversespec.edge.Stop
import inversespec.edge.Token
import inversespec.edge.UsageException
import java.util.concurrent.Executor

/** Loads payloads and fills them, or asks a service: the actions of the Fill screen. */
class FillViewModel(
    private val context: Context,
    private val models: ModelsViewModel,
    private val modelThread: Executor,
    private val fileThread: Executor,
    private val localCleartext: Boolean = false,
) {
    val state = StateHolder(FillUiState())
    private var cancel = CancelSignal()
    private var loads = 0
    private val preferences = context.getSharedPreferences("service", Context.MODE_PRIVATE)
    private val main = Handler(Looper.getMainLooper())

    /** The service that was asked last; null before the first one. */
    val lastService: ServiceSettings?
        get() = preferences.getString(ADDRESS, null)?.let {
            ServiceSettings(
                it,
                preferences.getString(KEY, null),
                preferences.getBoolean(STREAM, true),
                preferences.getBoolean(CONFIDENCE, false),
            )
        }

    /** The user edited the prompt. */
    fun onPromptEdited(prompt: String) {
        if (prompt != state.value.prompt) state.update { it.copy(prompt = prompt) }
    }

    /** Sets the prompt programmatically: shared by another app, or restored. */
    fun setPrompt(prompt: String) = state.update { it.copy(prompt = prompt, promptVersion = it.promptVersion + 1) }

    fun openDocument(uri: Uri) = load {
        val resolver = context.contentResolver
        val name = documentInfo(resolver, uri).name
        Pair(PayloadLoader.readDocument(resolver, uri), name ?: context.getString(R.string.payload_unnamed))
    }

    /** Another app has named something that is no document of its own. */
    fun refuseDocument(uri: Uri) {
        cancel.cancel()
        loads++
        state.update(failed(LocalizedException(R.string.error_not_shared, "${uri.scheme}:")))
    }

    /** Asks this service from now on, in place of a payload; nothing is sent before [start]. */
    fun useService(service: ServiceSettings) {
        cancel.cancel()
        loads++
        try {
            client(service)
        } catch (error: UsageException) {
            return state.update(failed(error))
        }
        preferences.edit().putString(ADDRESS, service.address).putString(KEY, service.key)
            .putBoolean(STREAM, service.stream).putBoolean(CONFIDENCE, service.confidence).apply()
        state.update { FillUiState(prompt = it.prompt, promptVersion = it.promptVersion, service = service) }
    }

    private fun client(service: ServiceSettings) =
        ServiceClient(service.address, service.key, localCleartext = localCleartext)

    fun openSample(sample: Sample) {
        setPrompt(sample.prompt)
        load { Pair(context.assets.open(sample.asset).use { it.readBytes() }, context.getString(R.string.payload_sample)) }
    }

    fun clearPayload() {
        loads++
        state.update {
            it.copy(phase = if (it.phase == Phase.READING) Phase.IDLE else it.phase, payload = null, service = null)
        }
    }

    /**
     * Runs [read] on the file thread and shows the payload whose bytes and origin it returns. A later call, or
     * [clearPayload], discards the result.
     */
    private fun load(read: () -> Pair<ByteArray, String>) {
        cancel.cancel()
        val number = ++loads
        state.update {
            FillUiState(phase = Phase.READING, prompt = it.prompt, promptVersion = it.promptVersion)
        }
        fileThread.execute {
            val next: (FillUiState) -> FillUiState = try {
                val (bytes, origin) = read()
                val loaded = LoadedPayload(bytes, Payloads.peek(bytes), origin);
                { current ->
                    val prompt = loaded.header.extras.prompt
                    current.copy(
                        phase = Phase.IDLE,
                        payload = loaded,
                        prompt = prompt ?: current.prompt,
                        promptVersion = current.promptVersion + if (prompt != null) 1 else 0,
                    )
                }
            } catch (error: Exception) {
                failed(error)
            }
            state.update { if (loads == number) next(it) else it }
        }
    }

    /** Generates the answer to the current prompt and payload. */
    fun start() {
        val request = state.value
        if (request.busy || request.phase == Phase.READING) return
        val prompt = request.prompt.trim().ifEmpty { null }
        if (prompt == null && request.payload?.header?.extras?.prompt == null) {
            return state.update(failed(LocalizedException(R.string.error_no_prompt)))
        }
        val signal = CancelSignal()
        cancel = signal
        state.update {
            it.copy(
                phase = Phase.LOADING,
                answer = AnswerText(),
                stats = null,
                doubt = null,
                error = null,
                received = 0,
                notice = null,
            )
        }
        // Once another payload or service has been chosen, the state no longer belongs to this answer.
        fun update(change: (FillUiState) -> FillUiState) = state.update {
            if (cancel === signal && it.payload === request.payload && it.service == request.service) change(it) else it
        }
        modelThread.execute {
            try {
                val runtime = models.open()
                update { it.copy(phase = Phase.FILLING) }
                val service = request.service
                val stats = if (service != null && prompt != null) {
                    val options = ServiceOptions(stream = service.stream, confidence = service.confidence)
                    runtime.answer(client(service), prompt, options, signal) { show(it, ::update) }
                } else {
                    runtime.fill(request.payload?.bytes, prompt, signal) { show(it, ::update) }
                }
                val doubt = stats.service?.doubt ?: request.payload?.header?.extras?.doubt
                update {
                    val end = if (stats.stop == Stop.CANCELLED) Phase.STOPPED else Phase.DONE
                    it.copy(phase = end, answer = it.answer.append(stats.tail, Source.FILL), stats = stats, doubt = doubt)
                }
            } catch (error: Exception) {
                update(failed(error))
            } catch (error: OutOfMemoryError) {
                update(failed(error))
            }
        }
    }

    /** Shows one event of an answer; [update] changes the state where it still belongs to that answer. */
    private fun show(event: AnswerEvent, update: ((FillUiState) -> FillUiState) -> Unit) {
        when (event) {
            is Token -> update { it.copy(answer = it.answer + event) }
            is Retract -> {
                update { it.copy(answer = it.answer.retract(event.position)) }
                main.postDelayed({ update { it.copy(answer = it.answer.copy(takenBack = "")) } }, TAKEN_BACK_MS)
            }
            is PayloadReceived -> update { it.copy(received = it.received + event.bytes) }
            is ServiceFailed -> {
                val text = if (event.alone) R.string.notice_alone else R.string.notice_rest
                val notice = context.getString(text, event.reason)
                update { it.copy(notice = notice) }
            }
            is CompactRequested -> {
                val notice = context.getString(R.string.notice_compact)
                update { it.copy(notice = notice) }
            }
            is Finished -> Unit
        }
    }

    fun stop() = cancel.cancel()

    private fun failed(error: Throwable): (FillUiState) -> FillUiState {
        val message = context.errorMessage(error)
        return { it.copy(phase = Phase.FAILED, error = message) }
    }

    private companion object {
        const val ADDRESS = "address"
        const val KEY = "key"
        const val STREAM = "stream"
        const val CONFIDENCE = "confidence"

        /** For how long text that was taken back is shown. */
        const val TAKEN_BACK_MS = 900L
    }
}
