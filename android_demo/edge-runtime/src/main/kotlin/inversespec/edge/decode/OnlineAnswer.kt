package inversespec.edge.decode

import inversespec.edge.*
import inversespec.edge.client.PayloadFeed
import inversespec.edge.payload.openPayload

/**
 * An answer with an anchor service: written at once and refined as payloads arrive, or written around one payload.
 *
 * Responsible for both fallbacks: where the service cannot be reached the device answers alone; where its predictions
 * are not those of a predictive payload it asks for a compact one. Not responsible for HTTP ([ServiceClient]).
 *
 * @param doubts with a refined answer: whether to ask, given the device's tokens so far; null asks at once.
 */
internal class OnlineAnswer(
    private val model: Model,
    private val client: ServiceClient,
    private val messages: List<ChatMessage>,
    private val service: ServiceOptions,
    private val options: FillOptions,
    private val cancel: CancelSignal,
    private val doubts: ((List<Token>) -> Boolean)?,
    private val onEvent: (AnswerEvent) -> Unit,
) {
    private val promptIds = model.promptIds(messages)
    val transcript = Transcript(model.tokenizer) { event ->
        onEvent(event)
        watch()
    }
    val costs = Costs()
    private var feed: PayloadFeed? = null
    private var asked = false
    private var base: Base? = null
    private var on = model.shared

    /** The latest anchors, or none. */
    var anchors: AnchorSet = model.noAnchors()
        private set
    var report = ServiceReport()
        private set
    val promptTokens: Int get() = promptIds.size

    init {
        if (service.stream && options.sampling != null) {
            throw UsageException(
                "stream: expected no sampling beside it: a later payload would change what was written. Wait for the " +
                    "payload instead.",
            )
        }
        if (doubts == null) ask(service.codec)
    }

    private fun ask(codec: Codec?) {
        asked = true
        val opened = client.open(messages, model.info.contract.identity, service, codec)
        feed = opened
        report = report.copy(sent = report.sent + opened.sent)
    }

    /** Asks as soon as the device doubts what it writes. */
    private fun watch() {
        if (!asked && transcript.tokens.size >= Doubt.WATCHED) askOnDoubt()
    }

    private fun askOnDoubt() {
        if (!asked && doubts?.invoke(transcript.tokens) == true) ask(service.codec)
    }

    /** Runs the answer to its end. Throws what decoding does, CloudRefusedException and CloudUnavailableException. */
    fun run() {
        try {
            if (service.stream) refine() else fill()
            // Also where a complete answer was waiting for further payloads.
            if (cancel.isCancelled) costs.stop = Stop.CANCELLED
        } finally {
            feed?.close()
        }
    }

    /** Waits for the payload, then fills it. */
    private fun fill() {
        val received = next()
        if (cancel.isCancelled) return
        if (received != null && isPredictive(received)) return fillPredictive(received)
        if (received != null && !take(received)) return fill() // a compact one is coming
        model.fill(promptIds, anchors, options, transcript, costs, cancel, on)
    }

    /** Emits the tokens of a predictive payload while it is decoded, and those that follow. */
    private fun fillPredictive(received: ReceivedPayload) {
        try {
            anchors = model.fillPredictive(received.data, promptIds, options, transcript, costs, cancel) ?: return
        } catch (other: FingerprintException) {
            transcript.retract(0)
            askForCompact(other)
            return fill()
        }
        arrived(received)
    }

    /** Writes at once; with every payload takes back what it contradicts, and goes on. */
    private fun refine() {
        var rest = options
        var eosFrom = 0
        while (true) {
            val before = on
            model.fill(promptIds, anchors, rest, transcript, costs, cancel, on) { cancel.isCancelled || feed?.isReady == true }
            rest = options.copy(echoPrompt = false)
            if (cancel.isCancelled) return
            askOnDoubt() // of an answer that is shorter than what is watched
            val received = next() ?: break
            if (!take(received)) continue
            val ending = Ending.of(anchors, model.info.context - promptIds.size, options.maxTokens)
            transcript.retract(Refinement.kept(transcript.tokens, anchors, ending, eosFrom, on == before))
            eosFrom = ending.eosFrom
        }
        // A failure of the service may have ended the run before its end.
        if (!cancel.isCancelled && costs.stop == Stop.CANCELLED) {
            model.fill(promptIds, anchors, rest, transcript, costs, cancel, on)
        }
    }

    /** The next payload; null after the last one, where stopped, and where the service failed, which is reported. */
    private fun next(): ReceivedPayload? = try {
        feed?.next(cancel)
    } catch (error: CloudUnavailableException) {
        failed(error)
        null
    }

    private fun failed(error: CloudUnavailableException) {
        val alone = report.payloadBytes.isEmpty()
        if (alone && !service.fallback) throw error
        report = report.copy(failure = error.message)
        onEvent(ServiceFailed(error.message.orEmpty(), alone))
    }

    /** Decodes a payload and makes its anchors the latest; false where it is asked for again, or where stopped. */
    private fun take(received: ReceivedPayload): Boolean {
        val old = if (received.delta) base else null
        anchors = try {
            if (isPredictive(received)) {
                model.decodePredictive(received.data, promptIds, old, costs, cancel) ?: return false
            } else {
                model.decode(received.data, promptIds, old)
            }
        } catch (other: FingerprintException) {
            askForCompact(other)
            return false
        }
        on = model.of(openPayload(received.data).header.codec)
        arrived(received)
        return true
    }

    private fun arrived(received: ReceivedPayload) {
        base = Base(received.data, anchors)
        val doubt = openPayload(received.data).header.extras.doubt
        report = report.copy(payloadBytes = report.payloadBytes + received.data.size, doubt = doubt)
        onEvent(PayloadReceived(received.data.size, anchors.size))
    }

    private fun askForCompact(reason: FingerprintException) {
        if (report.fellBack != null) throw reason
        report = report.copy(fellBack = reason.message)
        onEvent(CompactRequested(reason.message.orEmpty()))
        feed?.close()
        base = null
        ask(Codec.COMPACT)
    }

    private fun isPredictive(received: ReceivedPayload) = openPayload(received.data).header.codec == Codec.PREDICTIVE
}
