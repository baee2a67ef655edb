package inversespec.edge

import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import java.io.File
import java.io.IOException
import java.nio.ByteBuffer
import java.nio.ByteOrder

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
 * A conversation on the device, whose turns share one KV cache.
 *
 * ```kotlin
 * val session = EdgeSession(runtime, system = "Answer in one sentence.")
 * val cloud = ServiceClient("https://anchors.example.com")
 * session.ask("Which river runs through Vienna?", cloud = cloud) { event -> show(event) }
 * session.save(File(filesDir, "talk.session"))
 * ```
 *
 * It keeps messages as text, and an answer is the one that a fresh session gives which is handed the whole text: the
 * model runs only the tokens that its cache lacks. Clones and further sessions may share the runtime. Calls block, as
 * those of [EdgeRuntime]; one thread at a time.
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
    var messages: List<ChatMessage> = listOfNotNull(system?.let { ChatMessage(ChatRole.SYSTEM, it) }) + messages
        private set

    /** Whether anything was said that must not leave the device; clones and files keep it. */
    var isPrivate = false
        internal set

    private var asking = false

    /** A session with the same conversation, which goes its own way from here. */
    fun clone() = EdgeSession(runtime, null, messages, reserve).also { it.isPrivate = isPrivate }

    /**
     * The messages that a question is answered with. Where they and the answer do not fit the context, whole turns are
     * dropped, the oldest first; the system prompt and the question stay. A payload for the question has to be made for
     * these messages.
     */
    @JvmOverloads
    fun prompt(question: String, options: FillOptions = FillOptions()): SessionPrompt {
        val room = runtime.info.context - (options.maxTokens ?: reserve)
        var found = messages + ChatMessage(ChatRole.USER, question)
        var dropped = 0
        while (runtime.promptTokens(found) > room) {
            val head = found.takeWhile { it.role == ChatRole.SYSTEM }.take(1)
            val turns = found.drop(head.size)
            val rest = (1 until turns.size).firstOrNull { turns[it].role == ChatRole.USER } ?: break
            found = head + turns.drop(rest)
            dropped++
        }
        return SessionPrompt(found, dropped)
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
     * @throws UsageException for a mode that asks without a cloud, and from within [onEvent];
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
        if (asking) throw UsageException("session: expected a question at a time, found one from within its answer")
        val prompt = prompt(question, options)
        val tokens = ArrayList<Token>()
        var tail = ""
        asking = true
        try {
            val stats = answer(prompt.messages) { event ->
                if (event is Token && event.source != Source.PROMPT) tokens.add(event)
                if (event is Retract) tokens.subList(event.position, tokens.size).clear()
                onEvent(event)
            }
            tail = stats.tail
            return TurnAnswer(tokens, stats, prompt.dropped)
        } finally {
            asking = false
            if (tokens.isNotEmpty()) {
                val text = tokens.joinToString("") { it.text } + tail
                messages = prompt.messages + ChatMessage(ChatRole.ASSISTANT, text)
            }
        }
    }

    /**
     * Writes messages and what the cache holds of them, tied to the bundle's variant by hash; the Python runtime reads
     * the same file. Throws [SessionFileException] where it cannot be written.
     */
    fun save(file: File) {
        val (ids, cache) = if (messages.isEmpty()) IntArray(0) to ByteArray(0) else runtime.cached(messages)
        val said = messages.joinToString(", ") { "[${Json.quote(it.role.label)}, ${Json.quote(it.content)}]" }
        val head = runtime.identity.map { (name, value) -> "\"$name\": \"$value\"" } +
            listOf("\"messages\": [$said]", "\"tokens\": [${ids.joinToString(", ")}]", "\"private\": $isPrivate")
        val header = head.joinToString(", ", "{", "}").toByteArray(Charsets.US_ASCII)
        val size = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(header.size).array()
        val parts = arrayOf(MAGIC, size, header, cache)
        try {
            writeWhole(file) { out ->
                parts.forEach(out::write)
                out.write(sha256(*parts))
            }
        } catch (error: IOException) {
            throw SessionFileException("$file: expected to write a session, found ${error.message}")
        }
    }

    companion object {
        private const val RESERVE = 128
        private val MAGIC = "IVSESS01".toByteArray(Charsets.US_ASCII)
        private const val MAX_HEADER_BYTES = 16 shl 20

        /** The session of a file, its cache restored. Throws [SessionFileException] where it does not fit. */
        @JvmStatic
        @JvmOverloads
        fun load(file: File, runtime: EdgeRuntime, reserve: Int = RESERVE): EdgeSession {
            val data = read(file, runtime.info.context * runtime.info.cacheBytesPerToken + MAX_HEADER_BYTES)
            val body = data.copyOf(data.size - DIGEST)
            if (!sha256(body).contentEquals(data.copyOfRange(body.size, data.size))) throw damaged(file)
            val start = MAGIC.size + 4
            val size = ByteBuffer.wrap(body, MAGIC.size, 4).order(ByteOrder.LITTLE_ENDIAN).int
            val session = EdgeSession(runtime, reserve = reserve)
            val ids: IntArray
            val identity: Map<String, Any?>
            try {
                val head = Json.parse(body.copyOfRange(start, start + size)) as Map<*, *>
                session.messages = (head["messages"] as List<*>).map { row ->
                    val (role, content) = row as List<*>
                    ChatMessage(ChatRole.entries.first { it.label == role }, content as String)
                }
                session.isPrivate = head["private"] as Boolean
                ids = (head["tokens"] as List<*>).map { Math.toIntExact(it as Long) }.toIntArray()
                identity = runtime.identity.mapValues { (name, _) -> head[name] }
            } catch (error: JsonException) {
                throw another(file, error)
            } catch (error: RuntimeException) { // a value of another type, or none
                throw another(file, error)
            }
            for ((name, wanted) in runtime.identity) {
                if (identity[name] == wanted) continue
                throw SessionFileException(
                    "$file: expected a session of ${runtime.info.dir.name}, variant ${runtime.info.variant} " +
                        "($name ${wanted.take(12)}), found one of another model (${"${identity[name]}".take(12)})",
                )
            }
            val cache = body.copyOfRange(start + size, body.size)
            if (ids.isNotEmpty()) {
                val expected = ids.size * runtime.info.cacheBytesPerToken
                if (ids.size > runtime.info.context || cache.size.toLong() != expected) {
                    throw SessionFileException(
                        "$file: expected the cache of ${ids.size} tokens within a context of ${runtime.info.context}, " +
                            "found ${cache.size} bytes",
                    )
                }
                runtime.restore(ids, cache)
            }
            return session
        }

        private const val DIGEST = 32

        private fun read(file: File, most: Long): ByteArray {
            try {
                if (file.length() > most) throw damaged(file)
                val data = file.readBytes()
                if (data.size < MAGIC.size + 4 + DIGEST || !data.copyOf(MAGIC.size).contentEquals(MAGIC)) {
                    throw SessionFileException("$file: expected a whole session of this software, found another file")
                }
                return data
            } catch (error: IOException) {
                throw SessionFileException("$file: expected a readable session, found ${error.message}")
            }
        }

        private fun damaged(file: File) = SessionFileException(
            "$file: expected a whole session of this software, found one that is damaged or too large",
        )

        private fun another(file: File, error: Exception) =
            SessionFileException("$file: expected messages and tokens, found ${error.message}")
    }
}
