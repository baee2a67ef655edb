package inversespec.app

import android.content.Context
import android.net.Uri
import inversespec.edge.CancelSignal
import inversespec.edge.Payloads
import inversespec.edge.Source
import inversespec.edge.Stop
import java.util.concurrent.Executor

/** Loads payloads and fills them: the actions of the Fill screen. */
class FillViewModel(
    private val context: Context,
    private val models: ModelsViewModel,
    private val modelThread: Executor,
    private val fileThread: Executor,
) {
    val state = StateHolder(FillUiState())
    private var cancel = CancelSignal()
    private var loads = 0

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

    fun openSample(sample: Sample) {
        setPrompt(sample.prompt)
        load { Pair(context.assets.open(sample.asset).use { it.readBytes() }, context.getString(R.string.payload_sample)) }
    }

    fun clearPayload() {
        loads++
        state.update {
            it.copy(phase = if (it.phase == Phase.READING) Phase.IDLE else it.phase, payload = null)
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
            )
        }
        // Once another payload has been chosen, the state no longer belongs to this answer.
        fun update(change: (FillUiState) -> FillUiState) = state.update {
            if (cancel === signal && it.payload === request.payload) change(it) else it
        }
        modelThread.execute {
            try {
                val runtime = models.open()
                update { it.copy(phase = Phase.FILLING) }
                val stats = runtime.fill(request.payload?.bytes, prompt, signal) { token ->
                    update { it.copy(answer = it.answer + token) }
                }
                update {
                    val end = if (stats.stop == Stop.CANCELLED) Phase.STOPPED else Phase.DONE
                    it.copy(
                        phase = end,
                        answer = it.answer.append(stats.tail, Source.FILL),
                        stats = stats,
                        doubt = stats.doubt,
                    )
                }
            } catch (error: Exception) {
                update(failed(error))
            } catch (error: OutOfMemoryError) {
                update(failed(error))
            }
        }
    }

    fun stop() = cancel.cancel()

    private fun failed(error: Throwable): (FillUiState) -> FillUiState {
        val message = context.errorMessage(error)
        return { it.copy(phase = Phase.FAILED, error = message) }
    }
}
