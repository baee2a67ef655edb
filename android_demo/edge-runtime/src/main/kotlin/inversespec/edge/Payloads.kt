package inversespec.edge

import inversespec.edge.payload.Wire
import inversespec.edge.payload.openPayload

/**
 * Decodes payloads from untrusted bytes. payload/SPEC.md defines the format.
 *
 * ```kotlin
 * val header = Payloads.peek(bytes)
 * val fits = header.tag == Bundles.inspect(folder).contractTag
 * println("${header.size} bytes, prompt: ${header.extras.prompt}")
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
     * @throws PayloadException of the subclass that names the fault.
     */
    fun decode(data: ByteArray, shared: Shared): AnchorSet = Wire.decode(data, shared)
}
