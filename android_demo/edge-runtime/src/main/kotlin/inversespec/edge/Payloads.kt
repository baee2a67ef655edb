package inversespec.edge

import inversespec.edge.payload.Wire

/** How a payload's body is written; [number] travels in the header. */
enum class Codec(val number: Int, val label: String) {
    TEMPLATE_GZIP(0, "template-gzip"),
    TEMPLATE_ZSTD(1, "template-zstd"),
    COMPACT(2, "compact"),

    /** Written against the device model's own guesses. Its header is read here, its anchors are not. */
    PREDICTIVE(3, "predictive"),
}

/** The tokenizer as the payload's codecs see it. */
interface TokenBytes {
    /** The bytes one token stands for; none for an id without a token. */
    fun tokenBytes(id: Int): ByteArray

    /** Ids of a text. */
    fun encode(text: String): IntArray
}

/**
 * What a payload says about itself before its anchors are read.
 *
 * @property tag the contract tag as 2 hex digits; [Contract.identity] of a fitting bundle starts with it. Of
 *   codec predictive, another tag.
 * @property baseRef for a delta, the reference of the payload it adds to, as 2 hex digits.
 * @property prompt the user's prompt, where the payload carries it.
 * @property session in hex.
 * @property confidences number of anchors the payload states a confidence for.
 * @property size bytes of the payload; [bodyBytes]: of them, those that hold the anchors.
 */
data class Header(
    val version: Int,
    val codec: Codec,
    val tag: String,
    val needsPrompt: Boolean,
    val baseRef: String?,
    val prompt: String?,
    val session: String?,
    val step: Int,
    val totalSteps: Int,
    val confidences: Int,
    val size: Int,
    val bodyBytes: Int,
)

/** A payload that is at hand, and its anchors: what a delta adds to. */
class Base(val data: ByteArray, val anchors: AnchorSet)

/**
 * Reads payloads: bytes from anywhere, anchors or one clear error out. The format is payload/SPEC.md.
 *
 * ```kotlin
 * val header = Payloads.peek(bytes)
 * val fits = header.tag == Bundles.inspect(folder).contractTag
 * println("${header.size} bytes, prompt: ${header.prompt}")
 * ```
 */
object Payloads {
    /** More bytes than this are no payload. Whoever fetches one may stop reading here. */
    const val MAX_BYTES = 1 shl 19

    /**
     * The header and optional fields, without the anchors and without testing the checksum, which needs a
     * contract and maybe a prompt.
     *
     * @throws PayloadException of the kind that names what is wrong.
     */
    fun peek(data: ByteArray): Header = Wire.peek(data)

    /**
     * The anchors of a payload; for a delta, the base's and those it adds.
     *
     * @param contract of the model that will fill; a payload for another one is refused.
     * @param promptIds the ids the payload was made with, where `peek(data).needsPrompt`.
     * @param tokens the tokenizer, for the template codecs and for a prompt that the payload carries.
     * @param base the payload a delta adds to.
     * @throws PayloadException of the kind that names what is wrong.
     */
    fun decode(
        data: ByteArray,
        contract: Contract,
        promptIds: IntArray? = null,
        tokens: TokenBytes? = null,
        base: Base? = null,
    ): AnchorSet = Wire.decode(data, contract, promptIds, tokens, base)
}
