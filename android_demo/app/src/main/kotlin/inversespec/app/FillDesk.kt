package inversespec.app

import android.content.Context
import android.net.Uri
import inversespec.edge.Cancel
import inversespec.edge.FillStats
import inversespec.edge.Header
import inversespec.edge.Payloads
import inversespec.edge.Source
import inversespec.edge.Stop
import inversespec.edge.Token
import java.util.concurrent.Executor

/** Where an answer stands. */
enum class Phase { IDLE, READING, LOADING, FILLING, DONE, STOPPED, FAILED }

/** A payload at hand. */
class Received(val bytes: ByteArray, val header: Header, val from: String)

/** A stretch of the answer's text from one source; it ends before [end] and starts where the one before ends. */
data class Run(val source: Source, val end: Int)

/** The answer so far: its text, who wrote which part, and how many tokens each has given. */
data class Answer(val text: String = "", val runs: List<Run> = emptyList(), val cloud: Int = 0, val edge: Int = 0) {
    operator fun plus(token: Token): Answer {
        val counted = if (token.source == Source.ANCHOR) copy(cloud = cloud + 1) else copy(edge = edge + 1)
        return counted.with(token.text, token.source)
    }

    /** The same with text that belongs to no further token. */
    fun with(piece: String, source: Source): Answer {
        if (piece.isEmpty()) return this
        val longer = text + piece
        val kept = if (runs.lastOrNull()?.source == source) runs.dropLast(1) else runs
        return copy(text = longer, runs = kept + Run(source, longer.length))
    }
}

/**
 * All that the Fill screen shows.
 *
 * @property promptSet counts the times the prompt was set other than by typing: the screen must show it then.
 */
data class FillState(
    val phase: Phase = Phase.IDLE,
    val prompt: String = "",
    val promptSet: Int = 0,
    val payload: Received? = null,
    val answer: Answer = Answer(),
    val stats: FillStats? = null,
    val error: String? = null,
) {
    val busy get() = phase == Phase.LOADING || phase == Phase.FILLING
}

/** Takes a payload in and turns it into an answer; what the Fill screen asks for happens here. */
class FillDesk(
    private val context: Context,
    private val models: ModelsDesk,
    private val modelThread: Executor,
    private val fileThread: Executor,
) {
    val state = Live(FillState())
    private var running = Cancel()
    private var reading = 0

    /** The user typed. */
    fun type(prompt: String) {
        if (prompt != state.value.prompt) state.update { it.copy(prompt = prompt) }
    }

    /** Sets the prompt in the user's place: shared from another app, or kept from before. */
    fun setPrompt(prompt: String) = state.update { it.copy(prompt = prompt, promptSet = it.promptSet + 1) }

    fun openDocument(uri: Uri) = receive {
        val resolver = context.contentResolver
        val name = Intake.describe(resolver, uri).first
        Pair(Intake.document(resolver, uri), name ?: context.getString(R.string.payload_unnamed))
    }

    fun openAddress(address: String) = receive {
        Pair(Intake.download(address), Uri.parse(address.trim()).host.orEmpty())
    }

    fun openSample(sample: Sample) {
        setPrompt(sample.prompt)
        receive { Pair(context.assets.open(sample.asset).use { it.readBytes() }, context.getString(R.string.payload_sample)) }
    }

    fun clearPayload() {
        reading++
        state.update { it.copy(phase = if (it.phase == Phase.READING) Phase.IDLE else it.phase, payload = null) }
    }

    /** Reads a payload off the main thread; a newer call, or [clearPayload], makes this one's result void. */
    private fun receive(read: () -> Pair<ByteArray, String>) {
        running.cancel()
        val turn = ++reading
        state.update {
            FillState(phase = Phase.READING, prompt = it.prompt, promptSet = it.promptSet)
        }
        fileThread.execute {
            val next: (FillState) -> FillState = try {
                val (bytes, from) = read()
                val received = Received(bytes, Payloads.peek(bytes), from);
                { now ->
                    val prompt = received.header.prompt
                    now.copy(
                        phase = Phase.IDLE,
                        payload = received,
                        prompt = prompt ?: now.prompt,
                        promptSet = now.promptSet + if (prompt != null) 1 else 0,
                    )
                }
            } catch (error: Exception) {
                failed(error)
            }
            state.update { if (reading == turn) next(it) else it }
        }
    }

    /** Starts the answer that the screen shows prompt and payload for. */
    fun start() {
        val asked = state.value
        if (asked.busy || asked.phase == Phase.READING) return
        val prompt = asked.prompt.trim().ifEmpty { null }
        if (prompt == null && asked.payload?.header?.prompt == null) {
            return state.update(failed(Notice(R.string.error_no_prompt)))
        }
        val cancel = Cancel()
        running = cancel
        state.update { it.copy(phase = Phase.LOADING, answer = Answer(), stats = null, error = null) }
        // A payload that came in while this ran has made it void: its state is no longer this answer's.
        fun update(change: (FillState) -> FillState) =
            state.update { if (running === cancel && it.payload === asked.payload) change(it) else it }
        modelThread.execute {
            try {
                val model = models.open()
                update { it.copy(phase = Phase.FILLING) }
                val stats = model.fill(asked.payload?.bytes, prompt, cancel) { token ->
                    update { it.copy(answer = it.answer + token) }
                }
                update {
                    val end = if (stats.stop == Stop.CANCELLED) Phase.STOPPED else Phase.DONE
                    it.copy(phase = end, answer = it.answer.with(stats.tail, Source.FILL), stats = stats)
                }
            } catch (error: Exception) {
                update(failed(error))
            } catch (error: OutOfMemoryError) {
                update(failed(error))
            }
        }
    }

    fun stop() = running.cancel()

    private fun failed(error: Throwable): (FillState) -> FillState {
        val words = context.explain(error)
        return { it.copy(phase = Phase.FAILED, error = words) }
    }
}
