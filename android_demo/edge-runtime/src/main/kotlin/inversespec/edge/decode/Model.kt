package inversespec.edge.decode

import inversespec.edge.*
import inversespec.edge.engine.*
import inversespec.edge.payload.Wire
import inversespec.edge.text.PromptForm
import inversespec.edge.text.Tokenizer

/** Cost of an answer so far, over all its runs. Wall time. */
internal class Costs {
    var passes = 0
    var reused = -1
    var prefillSeconds = 0.0
    var stop = Stop.CANCELLED

    fun add(run: DecodeStats) {
        if (reused < 0) reused = run.reused
        if (passes == 0) prefillSeconds = run.prefillSeconds
        passes += run.passes
        stop = run.stop
    }
}

/**
 * The parts of an open model: tokenizer, form of prompts, and the model in two forms, for any number of callers.
 *
 * @param shared generates and forces tokens. [openPredictive] loads the model with float32 activations, which
 *   payloads of codecs predictive and portable are for, on first use. [fingerprint]: of the open variant.
 */
internal class Model(
    val info: BundleInfo,
    val tokenizer: Tokenizer,
    private val form: PromptForm,
    val shared: SharedModel,
    private val fingerprint: ByteArray,
    private val openPredictive: () -> SharedModel,
) : AutoCloseable {
    private var loaded: SharedModel? = null
    private var closed = false

    /** The model with float32 activations. */
    private val predictive: SharedModel
        @Synchronized get() {
            if (closed) throw EngineException(Turns.CLOSED)
            return loaded ?: openPredictive().also { loaded = it }
        }

    fun promptIds(messages: List<ChatMessage>): IntArray = form.ids(messages)

    /** No anchors, on as much room as there is. */
    fun noAnchors() = AnchorSet.empty(minOf(info.context, MAX_CANVAS), info.contract)

    /** Runs forced decoding on [on], after the tokens that the transcript holds already, to its end at most. */
    fun fill(
        prompt: IntArray,
        anchors: AnchorSet,
        options: FillOptions,
        transcript: Transcript,
        costs: Costs,
        cancel: CancelSignal,
        on: SharedModel = shared,
        stopped: () -> Boolean = cancel::isCancelled,
    ) = on.lease(prompt + transcript.ids, cancel) { engine ->
        costs.add(ForcedDecoder(engine, prompt, anchors, options, stopped, transcript.ids, transcript::add).run())
    }

    /** The model that writes around the anchors of a payload of this codec; null for no payload. */
    fun of(codec: Codec?): SharedModel = if (codec?.bound == true) predictive else shared

    /** Decodes a payload of a codec that runs no model. */
    fun decode(payload: ByteArray, prompt: IntArray, base: Base?): AnchorSet =
        Wire.decode(payload, Shared(info.contract, prompt, tokenizer, base, Named(fingerprint, prompt)))

    /** The model by its name only. */
    private class Named(override val identity: ByteArray, override val promptIds: IntArray) : Predictor {
        override fun row(text: List<Int>) = error("codec: expected one that runs no model")
    }

    /**
     * Decodes a payload of codec predictive, one pass per position; null where cancelled. Throws FingerprintException at
     * the end where the tokens given to [onToken] are wrong.
     */
    fun decodePredictive(
        payload: ByteArray,
        prompt: IntArray,
        base: Base?,
        costs: Costs,
        cancel: CancelSignal,
        onToken: (Int, Int, Source, Double) -> Unit = { _, _, _, _ -> },
    ): AnchorSet? {
        val started = System.nanoTime()
        return predictive.lease(prompt, cancel) { engine ->
            val predictor = EnginePredictor(engine, prompt, info.contract, fingerprint, cancel::isCancelled)
            try {
                val shared = Shared(info.contract, prompt, tokenizer, base, predictor)
                Wire.decodePredictive(payload, shared) { position, id, anchor, logProb ->
                    if (costs.prefillSeconds == 0.0) costs.prefillSeconds = (System.nanoTime() - started) / 1e9
                    onToken(id, position, if (anchor) Source.ANCHOR else Source.FILL, logProb)
                    if (cancel.isCancelled) throw PassTerminatedException()
                }
            } catch (cancelled: PassTerminatedException) {
                null
            } finally {
                costs.passes += predictor.passes
                if (costs.reused < 0) costs.reused = maxOf(0, predictor.reused)
            }
        }
    }

    /**
     * Writes the tokens of a payload of codec predictive while it is decoded, and those that follow; returns its
     * anchors, or null where cancelled. Throws FingerprintException where the tokens written are wrong.
     */
    fun fillPredictive(
        payload: ByteArray,
        prompt: IntArray,
        options: FillOptions,
        transcript: Transcript,
        costs: Costs,
        cancel: CancelSignal,
    ): AnchorSet? {
        if (options.echoPrompt) {
            for ((index, id) in prompt.withIndex()) {
                transcript.add(id, index - prompt.size, Source.PROMPT, Double.NaN)
            }
        }
        val most = options.maxTokens ?: Int.MAX_VALUE
        val anchors = decodePredictive(payload, prompt, null, costs, cancel) { id, position, source, logProb ->
            if (position < most) transcript.add(id, position, source, logProb)
        } ?: return null
        fill(prompt, anchors, options.copy(echoPrompt = false), transcript, costs, cancel, predictive)
        return anchors
    }

    /** The calls must have been cancelled. */
    @Synchronized
    override fun close() {
        closed = true
        shared.close()
        loaded?.close()
    }
}
