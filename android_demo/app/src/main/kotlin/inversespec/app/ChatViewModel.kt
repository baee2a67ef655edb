package inversespec.app

import android.content.Context
import android.os.Handler
import android.os.Looper
import inversespec.edge.AnswerEvent
import inversespec.edge.CancelSignal
import inversespec.edge.ChatRole
import inversespec.edge.EdgeRuntime
import inversespec.edge.EdgeSession
import inversespec.edge.InferenceMode
import inversespec.edge.Retract
import inversespec.edge.ServiceClient
import inversespec.edge.ServiceFailed
import inversespec.edge.Source
import inversespec.edge.Token
import inversespec.edge.TurnAnswer
import java.io.File
import java.util.concurrent.Executor

/**
 * A conversation with the open model, and with the service where its mode asks: the actions of the Chat screen.
 *
 * It outlives the process: each answer is followed by writing the session to a file, and a question is kept until its
 * answer is there, so that it can be asked again.
 */
class ChatViewModel(
    private val context: Context,
    private val models: ModelsViewModel,
    private val modelThread: Executor,
    private val localCleartext: Boolean,
) {
    private val preferences = context.getSharedPreferences("chat", Context.MODE_PRIVATE)
    private val file = File(context.filesDir, "talk.session")
    private val main = Handler(Looper.getMainLooper())
    private var cancel = CancelSignal()
    private var session: EdgeSession? = null // model thread only

    val state = StateHolder(
        ChatUiState(
            mode = InferenceMode.entries.firstOrNull { it.label == preferences.getString(MODE, null) }
                ?: InferenceMode.ONLY_ON_DEVICE,
        ),
    )

    /** The service to ask; null before the first one. */
    val service: ServiceSettings?
        get() = preferences.getString(ADDRESS, null)?.let { ServiceSettings(it, preferences.getString(KEY, null)) }

    /** Asks this service from now on; nothing is sent before a question. */
    fun useService(service: ServiceSettings) = guarded {
        client(service)
        preferences.edit().putString(ADDRESS, service.address).putString(KEY, service.key).apply()
        state.update { it.copy(error = null) }
    }

    private fun client(service: ServiceSettings) =
        ServiceClient(service.address, service.key, localCleartext = localCleartext)

    /** Shows the conversation that an earlier process has left. */
    fun start() = modelThread.execute {
        val draft = preferences.getString(PENDING, null)
        if (draft != null) state.update { it.copy(draft = draft, draftVersion = it.draftVersion + 1) }
        if (file.exists()) guarded { show(opened(models.open())) }
    }

    fun setMode(mode: InferenceMode) {
        if (mode == state.value.mode) return
        preferences.edit().putString(MODE, mode.label).apply()
        state.update { it.copy(mode = mode, error = null) }
    }

    /** A new conversation. */
    fun reset() {
        cancel.cancel()
        modelThread.execute {
            session = null
            file.delete()
            state.update { it.copy(turns = emptyList(), isPrivate = false, error = null) }
        }
    }

    fun stop() = cancel.cancel()

    /** Asks the next question; [isPrivate]: it and what follows never leave the device. */
    fun ask(question: String, isPrivate: Boolean) {
        val asked = question.trim()
        if (state.value.busy || asked.isEmpty()) return
        val signal = CancelSignal()
        cancel = signal
        preferences.edit().putString(PENDING, asked).apply()
        state.update { it.copy(busy = true, error = null, turns = it.turns + Turn(asked)) }
        modelThread.execute {
            guarded {
                val session = opened(models.open())
                val answer = session.ask(
                    asked, cloud = cloud(), mode = state.value.mode, isPrivate = isPrivate, cancel = signal, onEvent = ::show,
                )
                session.save(file)
                val (note, lead) = note(answer) to lead(context, answer.stats)
                state.update { now ->
                    now.last { it.copy(answer = it.answer.append(answer.stats.tail, Source.FILL), note = note, lead = lead) }
                }
            }
            preferences.edit().remove(PENDING).apply()
            state.update { it.copy(busy = false, isPrivate = session?.isPrivate == true) }
        }
    }

    private fun cloud(): ServiceClient? {
        if (service == null && state.value.mode != InferenceMode.ONLY_ON_DEVICE) {
            throw LocalizedException(R.string.chat_no_service)
        }
        return service?.let(::client)
    }

    /** The session, on the open model: another model reads its text anew. */
    private fun opened(runtime: EdgeRuntime): EdgeSession {
        val now = session
        val found = when {
            now?.runtime === runtime -> now
            now != null -> now.clone(runtime)
            file.exists() -> EdgeSession.load(file, runtime)
            else -> EdgeSession(runtime)
        }
        session = found
        return found
    }

    private fun show(session: EdgeSession) {
        val turns = ArrayList<Turn>()
        for (message in session.messages) {
            when (message.role) {
                ChatRole.USER -> turns.add(Turn(message.content))
                ChatRole.ASSISTANT -> turns[turns.lastIndex] =
                    turns.last().copy(answer = AnswerText().append(message.content, Source.PROMPT))
                ChatRole.SYSTEM -> Unit
            }
        }
        state.update { it.copy(turns = turns, isPrivate = session.isPrivate) }
    }

    private fun show(event: AnswerEvent) {
        when (event) {
            is Token -> state.update { now -> now.last { it.copy(answer = it.answer + event) } }
            is Retract -> {
                state.update { now -> now.last { it.copy(answer = it.answer.retract(event.position)) } }
                main.postDelayed(
                    { state.update { now -> now.last { it.copy(answer = it.answer.copy(takenBack = "")) } } },
                    TAKEN_BACK_MS,
                )
            }
            is ServiceFailed -> {
                val reason = context.getString(R.string.notice_alone, event.reason)
                state.update { now -> now.last { it.copy(note = reason) } }
            }
            else -> Unit
        }
    }

    /** Source, cost and doubt of an answer; a failure of the service stays as it is. */
    private fun note(answer: TurnAnswer): String? {
        val asked = answer.stats.service
        if (asked?.failure != null) return state.value.turns.lastOrNull()?.note
        val source = context.getString(SOURCES.getValue(answer.source.label))
        val doubt = answer.stats.doubt?.let { context.getString(R.string.chat_doubt_cloud, it) }
            ?: answer.deviceDoubt?.let { context.getString(R.string.chat_doubt_device, it) }
        val bytes = asked?.let { it.sent + it.payloadBytes.sum() }?.takeIf { it > 0 }?.let { context.getString(R.string.chat_bytes, it) }
        return listOfNotNull(source, bytes, doubt).joinToString(" · ")
    }

    /** Runs [body]; its failure is shown, and a turn without an answer is asked again by its draft. */
    private fun guarded(body: () -> Unit) {
        val error = try {
            return body()
        } catch (failure: Exception) {
            failure
        } catch (failure: OutOfMemoryError) {
            failure
        }
        val message = context.errorMessage(error)
        state.update { now ->
            val open = now.turns.lastOrNull()?.takeIf { now.busy && it.answer.text.isEmpty() } ?: return@update now.copy(error = message)
            now.copy(
                turns = now.turns.dropLast(1),
                draft = open.question,
                draftVersion = now.draftVersion + 1,
                error = message,
            )
        }
    }

    private companion object {
        const val ADDRESS = "address"
        const val KEY = "key"
        const val MODE = "mode"
        const val PENDING = "pending"

        /** For how long text that was taken back is shown. */
        const val TAKEN_BACK_MS = 900L
        val SOURCES = mapOf(
            "on_device" to R.string.chat_on_device,
            "in_cloud" to R.string.chat_in_cloud,
            "mixed" to R.string.chat_mixed,
        )
    }
}
