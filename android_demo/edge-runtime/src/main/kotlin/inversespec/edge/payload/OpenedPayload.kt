package inversespec.edge.payload

import inversespec.edge.*

private const val VERSION = 1
private const val NEEDS_PROMPT = 4
private const val DELTA = 2
private const val EXTRAS = 1

/**
 * Bytes before the optional fields. Byte 0: version (2 bits), codec (3), needs prompt, is a delta, has optional
 * fields. Byte 1: contract tag. Bytes 2-3: check. A delta continues with the reference to its
 * base.
 */
internal const val HEADER_BYTES = 4

/** A payload in its parts, before its check is verified. */
internal class OpenedPayload(val header: Header, val body: ByteArray)

/**
 * Splits a payload into header, optional fields and body; verifies neither checksum nor contract.
 *
 * @throws PayloadException of the subclass that names the fault.
 */
internal fun openPayload(data: ByteArray): OpenedPayload {
    if (data.size > Payloads.MAX_BYTES) {
        throw OversizedPayloadException(
            "payload: expected at most ${Payloads.MAX_BYTES} bytes, found ${data.size}; this is not a payload",
        )
    }
    val reader = ByteReader(data)
    val head = reader.take(HEADER_BYTES, "header")
    val first = head[0].toInt() and 0xFF
    val version = first shr 6
    if (version != VERSION) {
        throw VersionException(
            "this is not a payload: expected byte 0 of version $VERSION, found ${hexByte(first)}; " +
                "where it is one of a later version, update this software to read it",
        )
    }
    val number = first shr 3 and 7
    val codec = Codec.values().firstOrNull { it.number == number } ?: throw CodecException(
        "codec: expected ${Codec.values().joinToString { "${it.number} (${it.label})" }}, found $number " +
            "in byte 0 (${hexByte(first)}); update this software to read it",
    )
    if (codec.bound && first and NEEDS_PROMPT == 0) {
        throw MalformedPayloadException(
            "header: expected codec ${codec.label} to need its prompt, found byte 0 ${hexByte(first)}",
        )
    }
    if (codec == Codec.TEMPLATE_GZIP && first and (NEEDS_PROMPT or DELTA) != 0) {
        throw MalformedPayloadException(
            "header: expected neither prompt nor base for codec ${codec.label}, found byte 0 ${hexByte(first)}",
        )
    }
    val baseRef = if (first and DELTA != 0) reader.take(1, "reference to the base payload").toHex() else null
    val extras = if (first and EXTRAS != 0) ExtrasReader.read(reader) else Extras()
    val header = Header(
        version = version,
        codec = codec,
        tag = head.copyOfRange(1, 2).toHex(),
        needsPrompt = first and NEEDS_PROMPT != 0,
        baseRef = baseRef,
        extras = extras,
        size = data.size,
        bodyBytes = reader.left,
    )
    return OpenedPayload(header, reader.rest())
}

private fun hexByte(byte: Int) = "0x${byte.toString(16).padStart(2, '0')}"
