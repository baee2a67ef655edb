package inversespec.edge

/** Where the turns of an [Assistant] are answered. */
enum class InferenceMode(val label: String) {
    /** The device alone; nothing leaves it. */
    ONLY_ON_DEVICE("only_on_device"),

    /** The device writes at once; where it doubts what it writes the cloud is asked, and the text refined in place. */
    PREFER_ON_DEVICE("prefer_on_device"),

    /** The cloud is asked first; where it cannot be reached the device answers alone. */
    PREFER_IN_CLOUD("prefer_in_cloud"),

    /** The cloud's anchors, or an error. */
    ONLY_IN_CLOUD("only_in_cloud"),
}

/**
 * A session that decides where each turn is answered.
 *
 * ```kotlin
 * val assistant = Assistant(EdgeSession(runtime), ServiceClient("https://anchors.example.com"))
 * val answer = assistant.ask("Which river runs through Vienna?") { event -> show(event) }
 * println("${answer.source}, doubt ${answer.deviceDoubt}")
 * ```
 *
 * @property session may be replaced between turns.
 * @param client null where there is no service.
 * @param mode [InferenceMode.PREFER_ON_DEVICE] where there is a service, unless another is given.
 * @param threshold the device's doubt, 0 to 1, above which `PREFER_ON_DEVICE` asks the cloud; null for the bundle's.
 * @property daily the day's budget; null for none.
 * @property memory the anchors of earlier requests; null for none. Nothing private is asked of it or kept in it.
 * @throws UsageException for a mode that needs a service, without one.
 */
class Assistant @JvmOverloads constructor(
    var session: EdgeSession,
    private val client: ServiceClient? = null,
    mode: InferenceMode = if (client == null) InferenceMode.ONLY_ON_DEVICE else InferenceMode.PREFER_ON_DEVICE,
    threshold: Double? = null,
    val daily: DailyBudget? = null,
    val memory: AnswerMemory? = null,
) {
    /** The doubt above which the cloud is asked. */
    val threshold: Double = threshold ?: session.runtime.info.askFrom ?: Doubt.THRESHOLD

    /** Where the next turns are answered. */
    var mode: InferenceMode = checked(mode)
        set(value) {
            field = checked(value)
        }

    private fun checked(mode: InferenceMode): InferenceMode {
        if (mode != InferenceMode.ONLY_ON_DEVICE && client == null) {
            throw UsageException("mode: expected a service beside ${mode.label}, found none")
        }
        return mode
    }

    /**
     * The answer to the next question.
     *
     * @param isPrivate the device answers alone, whatever the mode, and so it does for the rest of the conversation,
     *   which a later question would send along.
     * @param onEvent called on the calling thread, with tokens as soon as they are known.
     * @throws CloudRefusedException, with `ONLY_IN_CLOUD` also [CloudUnavailableException], and what
     *   [EdgeSession.ask] throws.
     */
    @JvmOverloads
    fun ask(
        question: String,
        options: FillOptions = FillOptions(),
        isPrivate: Boolean = false,
        cancel: CancelSignal = CancelSignal(),
        onEvent: (AnswerEvent) -> Unit,
    ): TurnAnswer {
        if (isPrivate) session.isPrivate = true
        val runtime = session.runtime
        return session.turn(question, options, onEvent) { messages, emit ->
            if (client == null || session.isPrivate || mode == InferenceMode.ONLY_ON_DEVICE) {
                return@turn runtime.fill(null, messages, cancel, options, emit)
            }
            val doubts = { tokens: List<Token> -> (Doubt.ofDevice(tokens) ?: 0.0) > threshold }
            val waits = mode == InferenceMode.PREFER_ON_DEVICE
            val service = ServiceOptions(
                stream = waits,
                fallback = mode != InferenceMode.ONLY_IN_CLOUD,
                confidence = true,
            )
            runtime.answer(client, messages, service, cancel, options, daily, memory, if (waits) doubts else null, emit)
        }
    }
}
