package inversespec.edge.payload

import inversespec.edge.AnchorRangeException
import inversespec.edge.AnchorSet
import inversespec.edge.Base
import inversespec.edge.BasePayloadException
import inversespec.edge.ChecksumException
import inversespec.edge.Codec
import inversespec.edge.CodecException
import inversespec.edge.Contract
import inversespec.edge.ContractMismatchException
import inversespec.edge.Header
import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import inversespec.edge.Payloads
import inversespec.edge.PromptRequiredException
import inversespec.edge.TokenBytes
import inversespec.edge.TokenizerRequiredException
import inversespec.edge.VersionException

/**
 * How the parts of a payload lie in a row, and how each is refused; payload/SPEC.md is the same in words.
 *
 * Byte 0 holds version (2 bits), codec (3), needs prompt, is a delta, has optional fields; byte 1 the contract
 * tag; bytes 2-3 the check; then the reference to the base (a delta only), optional fields, body.
 */
internal object Wire {
    private const val VERSION = 1
    private const val HEADER_BYTES = 4
    private const val NEEDS_PROMPT = 4
    private const val DELTA = 2
    private const val EXTRAS = 1
    private val TEMPLATES = listOf(Codec.TEMPLATE_GZIP, Codec.TEMPLATE_ZSTD)
    private val READABLE = TEMPLATES + Codec.COMPACT

    private class Opened(val header: Header, val extras: Extras, val body: ByteArray)

    fun peek(data: ByteArray): Header = open(data).header

    fun decode(
        data: ByteArray,
        contract: Contract,
        promptIds: IntArray?,
        tokens: TokenBytes?,
        base: Base?,
    ): AnchorSet {
        val opened = open(data)
        val header = opened.header
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
        val on = base(header, base)
        val primed = if (header.needsPrompt) promptIds ?: carried(header, tokens) else null
        verify(data, header.codec, contract, primed, on)
        val extras = opened.extras
        val shape = when (header.codec) {
            Codec.COMPACT -> Compact.decode(opened.body, contract, primed ?: IntArray(0), on?.anchors)
            Codec.TEMPLATE_GZIP -> Template.decode(opened.body, needed(header, tokens), Squeeze::ungzip)
            else -> Template.decode(opened.body, needed(header, tokens), Squeeze::unzstd)
        }
        val positions = shape.found.keys.sorted()
        return AnchorSet(
            positions,
            positions.map(shape.found::getValue),
            shape.canvas,
            contract,
            shape.length,
            extras.step,
            extras.totalSteps,
            extras.prompt,
            extras.session,
            extras.confidence,
        )
    }

    /** Header and optional fields, and the bytes of the body. */
    private fun open(data: ByteArray): Opened {
        if (data.size > Payloads.MAX_BYTES) {
            throw OversizedPayloadException(
                "payload: expected at most ${Payloads.MAX_BYTES} bytes, found ${data.size}; this is not a payload",
            )
        }
        val reader = Reader(data)
        val head = reader.take(HEADER_BYTES, "header")
        val first = head[0].toInt() and 0xFF
        val version = first shr 6
        if (version != VERSION) {
            throw VersionException(
                "version: expected $VERSION, found $version in byte 0 (${hex(first)}); " +
                    if (version > VERSION) "update this software to read it" else "this is not a payload",
            )
        }
        val number = first shr 3 and 7
        val codec = Codec.values().firstOrNull { it.number == number } ?: throw CodecException(
            "codec: expected ${Codec.values().joinToString { "${it.number} (${it.label})" }}, found $number " +
                "in byte 0 (${hex(first)}); update this software to read it",
        )
        if (codec == Codec.PREDICTIVE && first and NEEDS_PROMPT == 0) {
            throw MalformedPayloadException(
                "header: expected codec ${codec.label} to need its prompt, found byte 0 ${hex(first)}",
            )
        }
        if (codec in TEMPLATES && first and (NEEDS_PROMPT or DELTA) != 0) {
            throw MalformedPayloadException(
                "header: expected neither prompt nor base for codec ${codec.label}, found byte 0 ${hex(first)}",
            )
        }
        val baseRef = if (first and DELTA != 0) reader.take(1, "reference to the base payload").toHex() else null
        val extras = if (first and EXTRAS != 0) Extras.read(reader) else Extras()
        val header = Header(
            version = version,
            codec = codec,
            tag = head.copyOfRange(1, 2).toHex(),
            needsPrompt = first and NEEDS_PROMPT != 0,
            baseRef = baseRef,
            prompt = extras.prompt,
            session = extras.session,
            step = extras.step,
            totalSteps = extras.totalSteps,
            confidences = extras.confidence.size,
            size = data.size,
            bodyBytes = reader.left,
        )
        return Opened(header, extras, reader.rest())
    }

    /** The base a delta adds to; null for any other payload. */
    private fun base(header: Header, given: Base?): Base? {
        val wanted = header.baseRef ?: return null
        val found = given?.let { sha256(it.data).copyOf(1).toHex() }
        if (found == wanted) return given
        throw BasePayloadException(
            "base: expected the payload with reference $wanted that this one adds to, found ${found ?: "none"}; " +
                "decode the payloads of a stream in order and pass the one before",
        )
    }

    private fun carried(header: Header, tokens: TokenBytes?): IntArray {
        val text = header.prompt ?: throw PromptRequiredException(
            "prompt: expected the ids of the prompt that the payload was made with, found none; " +
                "give the prompt beside the payload",
        )
        return (tokens ?: throw PromptRequiredException(
            "prompt: expected its ids or a tokenizer to read the text that the payload carries, found neither",
        )).encode(text)
    }

    private fun needed(header: Header, tokens: TokenBytes?): TokenBytes = tokens ?: throw TokenizerRequiredException(
        "codec ${header.codec.label}: expected a tokenizer, found none",
    )

    private fun verify(data: ByteArray, codec: Codec, contract: Contract, promptIds: IntArray?, base: Base?) {
        val found = number(data, 2)
        val expected = crc(data) xor binding(codec, contract, promptIds, base)
        if (found == expected) return
        val cause = if (promptIds == null) {
            "the bytes were changed on their way, or it was made for another contract than $contract; fetch it again"
        } else {
            "the bytes were changed on their way, or it was made with another prompt than the ${promptIds.size} " +
                "ids given, or for another contract than $contract; fetch it again and give exactly the prompt it " +
                "was made with"
        }
        throw ChecksumException(
            "checksum: expected ${expected.toString(16).padStart(4, '0')}, found " +
                "${found.toString(16).padStart(4, '0')} in bytes 2-3 of ${data.size}: $cause",
        )
    }

    /** CRC-16 (polynomial 0x1021, start 0xFFFF) of all bytes but the check itself. */
    private fun crc(data: ByteArray): Int {
        var crc = 0xFFFF
        for (index in data.indices) {
            if (index in 2 until HEADER_BYTES) continue
            crc = crc xor ((data[index].toInt() and 0xFF) shl 8)
            repeat(8) { crc = (crc shl 1 xor (if (crc and 0x8000 != 0) 0x1021 else 0)) and 0xFFFF }
        }
        return crc
    }

    /** 16 bits that change with all a payload leans on: contract, model file, prompt, base. */
    private fun binding(codec: Codec, contract: Contract, promptIds: IntArray?, base: Base?): Int {
        val parts = arrayListOf(contract.identity.hexToBytes())
        if (codec == Codec.COMPACT) parts += ModelFile.hash
        if (promptIds != null) {
            if (promptIds.any { it < 0 }) {
                throw AnchorRangeException("prompt: expected ids of 0 and more, found others; give the tokenizer's ids")
            }
            parts += byteArrayOf('P'.code.toByte()) + ByteArray(4 * promptIds.size) {
                (promptIds[it / 4] shr 8 * (it % 4)).toByte()
            }
        }
        if (base != null) parts += byteArrayOf('B'.code.toByte()) + sha256(base.data)
        return number(sha256(*parts.toTypedArray()), 0)
    }

    private fun number(data: ByteArray, at: Int): Int =
        (data[at].toInt() and 0xFF shl 8) or (data[at + 1].toInt() and 0xFF)

    private fun hex(byte: Int) = "0x${byte.toString(16).padStart(2, '0')}"
}
