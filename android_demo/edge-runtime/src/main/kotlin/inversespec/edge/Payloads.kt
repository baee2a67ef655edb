package inversespec.edge

import inversespec.edge.payload.Wire
import inversespec.edge.payload.openPayload

/** A decoded payload: the bytes and the anchors that a delta extends. */
class Base(val data: ByteArray, val anchors: AnchorSet)

/**
 * Decodes payloads from untrusted bytes. payload/SPEC.md defines the format.
 *
 * ```kotlin
 * val header = Payloads.peek(bytes)
 * val fits = header.tag == Bundles.inspect(folder).contractTag
 * println("${header.size} bytes, prompt: ${header.prompt}")
 * ```
 */
object Payloads {
    /** Maximum size of a payload in bytes; a download may stop here. */
    const val MAX_BYTES = 1 shl 19

    /**
     * Returns header and optional fields. Decodes no anchors and does not verify the checksum, which takes a
     * contract and for some payloads the prompt.
     *
     * @throws PayloadException of the subclass that names the fault.
     */
    fun peek(data: ByteArray): Header = openPayload(data).header

    /**
     * Returns the anchors of a payload; for a delta, the anchors of its base and its own.
     *
     * @param contract the contract of the edge model; a payload for another contract is refused.
     * @param promptIds the prompt ids that the payload was encoded with, where `peek(data).needsPrompt`.
     * @param tokens the tokenizer, for the template codecs and for a prompt that the payload carries.
     * @param base the payload that a delta extends.
     * @throws PayloadException of the subclass that names the fault.
     */
    fun decode(
        data: ByteArray,
        contract: Contract,
        promptIds: IntArray? = null,
        tokens: TokenBytes? = null,
        base: Base? = null,
    ): AnchorSet = Wire.decode(data, contract, promptIds, tokens, base)
}
