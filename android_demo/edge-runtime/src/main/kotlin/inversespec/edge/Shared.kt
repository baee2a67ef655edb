package inversespec.edge

/** A decoded payload: the bytes and the anchors that a delta extends. */
class Base(val data: ByteArray, val anchors: AnchorSet)

/**
 * State that the encoder and the decoder of a payload share; all but the contract only where a codec needs it.
 *
 * @property contract the contract of the edge model; a payload for another contract is refused.
 * @property promptIds token ids of the prompt in the contract's chat template, up to the start of the answer; required
 *   where [Header.needsPrompt].
 * @property tokens the tokenizer, for the template codecs.
 * @property base the payload that a delta extends.
 * @property predictor the edge model behind this prompt, for codecs that are bound to it; [promptIds] then are its own.
 */
class Shared(
    val contract: Contract,
    val promptIds: IntArray? = null,
    val tokens: TokenBytes? = null,
    val base: Base? = null,
    val predictor: Predictor? = null,
)
