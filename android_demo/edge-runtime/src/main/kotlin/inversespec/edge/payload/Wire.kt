package inversespec.edge.payload

import inversespec.edge.AnchorSet
import inversespec.edge.Base
import inversespec.edge.BasePayloadException
import inversespec.edge.Codec
import inversespec.edge.CodecException
import inversespec.edge.Contract
import inversespec.edge.ContractMismatchException
import inversespec.edge.Header
import inversespec.edge.PromptRequiredException
import inversespec.edge.TokenBytes
import inversespec.edge.TokenizerRequiredException
import inversespec.edge.payload.codecs.CompactCodec
import inversespec.edge.payload.codecs.Compression
import inversespec.edge.payload.codecs.TemplateCodec
import inversespec.edge.sha256
import inversespec.edge.toHex

/** Decodes a whole payload: contract, base, prompt, check, body. payload/SPEC.md defines the format. */
internal object Wire {
    private val READABLE = listOf(Codec.TEMPLATE_GZIP, Codec.TEMPLATE_ZSTD, Codec.COMPACT)

    fun decode(
        data: ByteArray,
        contract: Contract,
        promptIds: IntArray?,
        tokens: TokenBytes?,
        base: Base?,
    ): AnchorSet {
        val payload = openPayload(data)
        val header = payload.header
        if (header.codec == Codec.PREDICTIVE) {
            throw CodecException(
                "codec: expected ${READABLE.joinToString { it.label }}, found ${header.codec.label}, which takes " +
                    "the model to read and is not read here; ask for a payload of codec compact for the same anchors",
            )
        }
        if (header.tag != contract.tag) {
            throw ContractMismatchException(
                "contract: expected tag ${contract.tag} of contract $contract, found a payload with tag " +
                    "${header.tag}; use the model bundle that it was made for, or ask for a payload for this one",
            )
        }
        val deltaBase = checkedBase(header, base)
        val primer = if (header.needsPrompt) promptIds ?: carriedPromptIds(header, tokens) else null
        verifyChecksum(data, header.codec, contract, primer, deltaBase)
        val extras = payload.extras
        val decoded = when (header.codec) {
            Codec.COMPACT -> CompactCodec.decode(payload.body, contract, primer ?: IntArray(0), deltaBase?.anchors)
            Codec.TEMPLATE_GZIP -> TemplateCodec.decode(payload.body, required(header, tokens), Compression::gunzip)
            else -> TemplateCodec.decode(payload.body, required(header, tokens), Compression::unzstd)
        }
        val positions = decoded.anchors.keys.sorted()
        return AnchorSet(
            positions,
            positions.map(decoded.anchors::getValue),
            decoded.canvas,
            contract,
            decoded.length,
            extras.step,
            extras.totalSteps,
            extras.prompt,
            extras.session,
            extras.confidence,
        )
    }

    /** The base of a delta, checked against its reference; null for any other payload. */
    private fun checkedBase(header: Header, given: Base?): Base? {
        val wanted = header.baseRef ?: return null
        val found = given?.let { sha256(it.data).copyOf(1).toHex() }
        if (found == wanted) return given
        throw BasePayloadException(
            "base: expected the payload with reference $wanted that this one adds to, found ${found ?: "none"}; " +
                "decode the payloads of a stream in order and pass the one before",
        )
    }

    /** Token ids of the prompt that the payload carries. */
    private fun carriedPromptIds(header: Header, tokens: TokenBytes?): IntArray {
        val text = header.prompt ?: throw PromptRequiredException(
            "prompt: expected the ids of the prompt that the payload was made with, found none; " +
                "give the prompt beside the payload",
        )
        return (tokens ?: throw PromptRequiredException(
            "prompt: expected its ids or a tokenizer to read the text that the payload carries, found neither",
        )).encode(text)
    }

    private fun required(header: Header, tokens: TokenBytes?): TokenBytes = tokens ?: throw TokenizerRequiredException(
        "codec ${header.codec.label}: expected a tokenizer, found none",
    )
}
