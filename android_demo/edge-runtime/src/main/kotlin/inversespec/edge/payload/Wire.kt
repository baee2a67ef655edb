package inversespec.edge.payload

import inversespec.edge.AnchorRangeException
import inversespec.edge.AnchorSet
import inversespec.edge.Base
import inversespec.edge.BasePayloadException
import inversespec.edge.Codec
import inversespec.edge.CodecException
import inversespec.edge.ContractMismatchException
import inversespec.edge.Header
import inversespec.edge.PromptRequiredException
import inversespec.edge.Shared
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

    fun decode(data: ByteArray, shared: Shared): AnchorSet {
        val payload = openPayload(data)
        val header = payload.header
        val contract = shared.contract
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
        val base = checkedBase(header, shared.base)
        val promptIds = if (header.needsPrompt) requiredPrompt(header, shared.promptIds) else null
        verifyChecksum(data, header.codec, contract, promptIds, base)
        val body = if (header.codec == Codec.COMPACT) {
            CompactCodec.decode(payload.body, contract, promptIds ?: IntArray(0), base?.anchors)
        } else {
            val gzip = header.codec == Codec.TEMPLATE_GZIP
            val decompress = if (gzip) Compression::gzipDecompress else Compression::zstdDecompress
            TemplateCodec.decode(payload.body, tokenizer(header, shared), decompress)
        }
        val anchors = AnchorSet.of(body.anchors, body.canvas, contract, body.length)
        val levels = header.extras.confidence.size
        if (levels > 0 && levels != anchors.size) {
            throw AnchorRangeException(
                "expected one confidence level per anchor, found $levels for ${anchors.size} anchors",
            )
        }
        return anchors
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

    private fun requiredPrompt(header: Header, given: IntArray?): IntArray {
        if (given != null) return given
        val remedy = if (header.extras.prompt == null) {
            "give the prompt beside the payload"
        } else {
            "put the text that the payload carries in the chat template and tokenise it"
        }
        throw PromptRequiredException(
            "prompt: expected the ids of the prompt that the payload was made with, found none; $remedy",
        )
    }

    private fun tokenizer(header: Header, shared: Shared): TokenBytes =
        shared.tokens ?: throw TokenizerRequiredException(
            "codec ${header.codec.label}: expected a tokenizer, found none",
        )
}
