package inversespec.edge

import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import java.io.File
import java.io.IOException
import java.util.concurrent.atomic.AtomicBoolean

/** Whose tokens an answer has. */
enum class AnswerSource(val label: String) {
    ON_DEVICE("on_device"),
    IN_CLOUD("in_cloud"),
    MIXED("mixed"),
}

/**
 * The answer of one turn.
 *
 * @property tokens those of the answer, without any that were taken back.
 * @property dropped turns that no longer fitted the context, oldest first.
 */
class TurnAnswer(val tokens: List<Token>, val stats: FillStats, val dropped: Int) {
    val text: String get() = tokens.joinToString("") { it.text } + stats.tail

    val source: AnswerSource
        get() = when (tokens.count { it.source == Source.ANCHOR }) {
            0 -> AnswerSource.ON_DEVICE
            tokens.size -> AnswerSource.IN_CLOUD
            else -> AnswerSource.MIXED
        }

    /** See [Doubt.ofDevice]; the cloud's is [FillStats.doubt]. */
    val deviceDoubt: Double? get() = Doubt.ofDevice(tokens)
}

/** The messages that a question is answered with, and the number of turns dropped from them. */
class SessionPrompt(val messages: List<ChatMessage>, val dropped: Int)

/**
 * A conversation on the device.
 *
 * ```kotlin
 * val session = EdgeSession(runtime, system = "Answer in one sentence.")
 * val cloud = ServiceClient("https://anchors.example.com")
 * session.ask("Which river runs through Vienna?", cloud = cloud) { event -> show(event) }
 * session.save(File(filesDir, "talk.session"))
 * ```
 *
 * It keeps messages as text, and an answer is the one that a fresh session gives which is handed the whole text: the
 * model runs only the tokens that no cache has. Clones and further sessions may share the runtime. Calls block, as those
 * of [EdgeRuntime]; a session takes one question at a time.
 *
 * @param system its system prompt. [messages]: a conversation to continue.
 * @property reserve tokens kept free for an answer whose options do not limit it.
 * @throws UsageException for a system prompt beside messages that begin with one.
 */
class EdgeSession @JvmOverloads constructor(
    val runtime: EdgeRuntime,
    system: String? = null,
    messages: List<ChatMessage> = emptyList(),
    val reserve: Int = RESERVE,
) {
    init {
        if (system != null && messages.firstOrNull()?.role == ChatRole.SYSTEM) {
            throw UsageException("messages: expected none of role system beside the system text given, found one")
        }
    }

    /** The conversation so far: system prompt, questions and answers. */
    @Volatile
    var messages: List<ChatMessage> = listOfNotNull(system?.let { ChatMessage(ChatRole.SYSTEM, it) }) + messages
        private set

    /** Whether anything was said that must not leave the device; clones and files keep it. */
    @Volatile
    var isPrivate = false
        internal set

    private val asking = AtomicBoolean()

    /** A session with the same conversation, which goes its own way from here, on this runtime or another one. */
    @JvmOverloads
    fun clone(runtime: EdgeRuntime = this.runtime): EdgeSession =
        EdgeSession(runtime, null, messages, reserve).also { it.isPrivate = isPrivate }

    /**
     * The messages that a question is answered with. Where they and the answer do not fit the context, whole turns are
     * dropped, the oldest first; the system prompt and the question stay. A payload for the question has to be made for
     * these messages.
     */
    @JvmOverloads
    fun prompt(question: String, options: FillOptions = FillOptions()): SessionPrompt {
        val room = runtime.info.context - (options.maxTokens ?: reserve)
        val all = messages + ChatMessage(ChatRole.USER, question)
        val head = all.take(if (all.first().role == ChatRole.SYSTEM) 1 else 0)
        val turns = all.drop(head.size)
        val starts = listOf(0) + (1 until turns.size).filter { turns[it].role == ChatRole.USER }
        fun without(dropped: Int) = head + turns.drop(starts[dropped])
        fun fits(dropped: Int) = runtime.promptTokens(without(dropped)) <= room

        // Backwards from the question, which stays though it may not fit, in doubling steps: a history far beyond the
        // context is not read.
        var dropped = starts.size - 1
        var step = 1
        while (dropped > 0 && fits(maxOf(0, dropped - step))) {
            dropped = maxOf(0, dropped - step)
            step *= 2
        }
        var least = maxOf(0, dropped - step)
        while (least < dropped) {
            val middle = (least + dropped) / 2
            if (fits(middle)) dropped = middle else least = middle + 1
        }
        return SessionPrompt(without(dropped), dropped)
    }

    /**
     * The answer to the next question. Question and answer join the conversation, a cancelled one as far as it was
     * written; neither does where nothing was.
     *
     * @param payload anchors at hand, made for [prompt]; then nobody is asked.
     * @param cloud whom the modes that ask may ask; null for nobody.
     * @param isPrivate the device answers alone, whatever the mode, and so it does for the rest of the conversation,
     *   which a later question would send along.
     * @param threshold the device's doubt, 0 to 1, above which `PREFER_ON_DEVICE` asks; null for the bundle's.
     * @param onEvent called on the calling thread, with tokens as soon as they are known.
     * @throws UsageException for a mode that asks without a cloud, and while another answer is written;
     *   [CloudRefusedException], with `ONLY_IN_CLOUD` also [CloudUnavailableException], and what [EdgeRuntime.fill]
     *   throws.
     */
    @JvmOverloads
    fun ask(
        question: String,
        options: FillOptions = FillOptions(),
        payload: ByteArray? = null,
        cloud: ServiceClient? = null,
        mode: InferenceMode = if (cloud == null) InferenceMode.ONLY_ON_DEVICE else InferenceMode.PREFER_ON_DEVICE,
        isPrivate: Boolean = false,
        threshold: Double? = null,
        cancel: CancelSignal = CancelSignal(),
        onEvent: (AnswerEvent) -> Unit,
    ): TurnAnswer {
        if (mode != InferenceMode.ONLY_ON_DEVICE && cloud == null) {
            throw UsageException("mode: expected a cloud beside ${mode.label}, found none")
        }
        if (isPrivate) this.isPrivate = true
        return turn(question, options, onEvent) { messages, emit ->
            if (cloud == null || payload != null || this.isPrivate || mode == InferenceMode.ONLY_ON_DEVICE) {
                return@turn runtime.fill(payload, messages, cancel, options, emit)
            }
            val limit = threshold ?: runtime.info.askFrom ?: Doubt.THRESHOLD
            val doubts = { tokens: List<Token> -> (Doubt.ofDevice(tokens) ?: 0.0) > limit }
            val waits = mode == InferenceMode.PREFER_ON_DEVICE
            val service = ServiceOptions(stream = waits, fallback = mode != InferenceMode.ONLY_IN_CLOUD)
            runtime.answer(cloud, messages, service, cancel, options, if (waits) doubts else null, emit)
        }
    }

    /** A turn whose answer [answer] gives to the messages of [prompt]. */
    private fun turn(
        question: String,
        options: FillOptions,
        onEvent: (AnswerEvent) -> Unit,
        answer: (List<ChatMessage>, (AnswerEvent) -> Unit) -> FillStats,
    ): TurnAnswer {
        if (!asking.compareAndSet(false, true)) {
            throw UsageException("session: expected a question at a time, found one while the last is being answered")
        }
        val tokens = ArrayList<Token>()
        var tail = ""
        var prompt: SessionPrompt? = null
        try {
            prompt = prompt(question, options)
            val stats = answer(prompt.messages) { event ->
                if (event is Token && event.source != Source.PROMPT) tokens.add(event)
                if (event is Retract) tokens.subList(event.position, tokens.size).clear()
                onEvent(event)
            }
            tail = stats.tail
            return TurnAnswer(tokens, stats, prompt.dropped)
        } finally {
            if (prompt != null && tokens.isNotEmpty()) {
                val text = tokens.joinToString("") { it.text } + tail
                messages = prompt.messages + ChatMessage(ChatRole.ASSISTANT, text)
            }
            asking.set(false)
        }
    }

    /**
     * Writes the conversation as JSON, as the Python runtime does; a session that is loaded reads its text anew. Throws
     * [SessionFileException] where it cannot be written.
     */
    fun save(file: File) {
        val said = messages.joinToString(", ") { "[${Json.quote(it.role.label)}, ${Json.quote(it.content)}]" }
        val text = "{\"format\": \"$FORMAT\", \"private\": $isPrivate, \"messages\": [$said]}"
        try {
            writeWhole(file) { it.write(text.toByteArray(Charsets.US_ASCII)) }
        } catch (error: IOException) {
            throw SessionFileException("$file: expected to write a session, found ${error.message}")
        }
    }

    companion object {
        private const val RESERVE = 128
        private const val FORMAT = "inverse speculation session 2"
        private const val MAX_FILE_BYTES = 16 shl 20

        /** The session of a file, for any bundle. Throws [SessionFileException] where it is none. */
        @JvmStatic
        @JvmOverloads
        fun load(file: File, runtime: EdgeRuntime, reserve: Int = RESERVE): EdgeSession {
            val session = EdgeSession(runtime, reserve = reserve)
            try {
                if (file.length() > MAX_FILE_BYTES) throw another(file, "more than $MAX_FILE_BYTES bytes")
                val head = Json.parse(file.readBytes()) as Map<*, *>
                if (head["format"] != FORMAT) throw another(file, "format ${head["format"]}")
                session.messages = (head["messages"] as List<*>).map { row ->
                    val (role, content) = (row as List<*>).also { require(it.size == 2) { "a message of ${it.size} parts" } }
                    ChatMessage(ChatRole.entries.first { it.label == role }, content as String)
                }
                session.isPrivate = head["private"] as Boolean
            } catch (error: IOException) {
                throw another(file, error.message)
            } catch (error: JsonException) {
                throw another(file, error.message)
            } catch (error: RuntimeException) { // a value of another type, or none
                throw another(file, error.message)
            }
            return session
        }

        private fun another(file: File, found: String?) =
            SessionFileException("$file: expected $FORMAT as JSON, found ${found?.take(200)}")
    }
}
