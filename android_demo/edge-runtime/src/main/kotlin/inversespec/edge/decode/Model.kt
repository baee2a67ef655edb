package inversespec.edge.decode

import inversespec.edge.AnchorSet
import inversespec.edge.Base
import inversespec.edge.BundleInfo
import inversespec.edge.ChatMessage
import inversespec.edge.FillOptions
import inversespec.edge.MAX_CANVAS
import inversespec.edge.Shared
import inversespec.edge.Source
import inversespec.edge.Stop
import inversespec.edge.engine.DecodingCancelledException
import inversespec.edge.engine.Engine
import inversespec.edge.engine.EnginePredictor
import inversespec.edge.engine.PassTerminatedException
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
 * The parts of an open model: tokenizer, form of prompts, and its engine in two forms.
 *
 * @property engine generates and forces tokens. [openPredictive] loads the engine with float32 activations, with which
 *   payloads of codec predictive are decoded, on first use.
 * @property fingerprint of the open variant.
 */
internal class Model(
    val info: BundleInfo,
    val tokenizer: Tokenizer,
    private val form: PromptForm,
    val engine: Engine,
    val fingerprint: ByteArray,
    private val openPredictive: () -> Engine,
) : AutoCloseable {
    private val lazyPredictive = lazy(openPredictive)

    /** The engine with float32 activations. */
    val predictiveEngine: Engine get() = lazyPredictive.value

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
        on: Engine = engine,
        stopped: () -> Boolean,
    ) {
        costs.add(ForcedDecoder(on, prompt, anchors, options, stopped, transcript.ids, transcript::add).run())
    }

    /** Decodes a payload of a codec that takes no model. */
    fun decode(payload: ByteArray, prompt: IntArray, base: Base?): AnchorSet =
        Wire.decode(payload, Shared(info.contract, prompt, tokenizer, base))

    /**
     * Decodes a payload of codec predictive, one pass per position; null where stopped. Throws FingerprintException at
     * the end where the tokens given to [onToken] are wrong.
     */
    fun decodePredictive(
        payload: ByteArray,
        prompt: IntArray,
        base: Base?,
        costs: Costs,
        stopped: () -> Boolean,
        onToken: (Int, Int, Source, Double) -> Unit = { _, _, _, _ -> },
    ): AnchorSet? {
        val started = System.nanoTime()
        val predictor = EnginePredictor(predictiveEngine, prompt, info.contract, fingerprint, stopped)
        try {
            val shared = Shared(info.contract, prompt, tokenizer, base, predictor)
            return Wire.decodePredictive(payload, shared) { position, id, anchor, logProb ->
                if (costs.prefillSeconds == 0.0) costs.prefillSeconds = (System.nanoTime() - started) / 1e9
                onToken(id, position, if (anchor) Source.ANCHOR else Source.FILL, logProb)
                if (stopped()) throw DecodingCancelledException()
            }
        } catch (cancelled: DecodingCancelledException) {
            return null
        } catch (terminated: PassTerminatedException) {
            return null
        } finally {
            costs.passes += predictor.passes
            if (costs.reused < 0) costs.reused = maxOf(0, predictor.reused)
        }
    }

    /**
     * Writes the tokens of a payload of codec predictive while it is decoded, and those that follow; returns its
     * anchors, or null where stopped. Throws FingerprintException where the tokens written are wrong.
     */
    fun fillPredictive(
        payload: ByteArray,
        prompt: IntArray,
        options: FillOptions,
        transcript: Transcript,
        costs: Costs,
        stopped: () -> Boolean,
    ): AnchorSet? {
        if (options.echoPrompt) {
            for ((index, id) in prompt.withIndex()) {
                transcript.add(id, index - prompt.size, Source.PROMPT, Double.NaN)
            }
        }
        val most = options.maxTokens ?: Int.MAX_VALUE
        val anchors = decodePredictive(payload, prompt, null, costs, stopped) { id, position, source, logProb ->
            if (position < most) transcript.add(id, position, source, logProb)
        } ?: return null
        fill(prompt, anchors, options.copy(echoPrompt = false), transcript, costs, predictiveEngine, stopped)
        return anchors
    }

    /** Terminates running passes from another thread; false permits passes again. */
    fun terminate(now: Boolean) {
        engine.terminate(now)
        if (lazyPredictive.isInitialized()) predictiveEngine.terminate(now)
    }

    override fun close() {
        engine.close()
        if (lazyPredictive.isInitialized()) predictiveEngine.close()
    }
}
