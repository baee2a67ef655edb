package inversespec.edge.payload

import inversespec.edge.*
import inversespec.edge.payload.codecs.ModelFile

/** Verifies the check of a payload; throws ChecksumException where it does not match. */
internal fun verifyChecksum(
    data: ByteArray,
    codec: Codec,
    contract: Contract,
    promptIds: IntArray?,
    base: Base?,
    fingerprint: ByteArray? = null,
) {
    val found = statedCheck(data)
    val expected = expectedCheck(data, codec, contract, promptIds, base, fingerprint)
    if (found == expected) return
    val cause = if (promptIds == null) {
        "the bytes were changed on their way, or it was made for another contract than $contract; " +
            "fetch it again"
    } else {
        "the bytes were changed on their way, or it was made with another prompt than the ${promptIds.size} " +
            "ids given, or for another contract than $contract; fetch it again and give exactly the prompt it was made with"
    }
    throw ChecksumException(
        "checksum: expected ${hexCheck(expected)}, found ${hexCheck(found)} in bytes 2-3 of ${data.size}: $cause",
    )
}

/** The check that a payload states. */
internal fun statedCheck(data: ByteArray): Int = uint16(data, 2)

/**
 * The check that a payload with these bytes should have.
 *
 * @param text the fingerprint of the model that the codec is bound to and, of codec predictive, the digest of the
 *   decoded text.
 */
internal fun expectedCheck(
    data: ByteArray,
    codec: Codec,
    contract: Contract,
    promptIds: IntArray?,
    base: Base?,
    text: ByteArray? = null,
): Int = crc(data) xor binding(codec, contract, promptIds, base, text)

/** A check as 4 hex digits. */
internal fun hexCheck(check: Int): String = check.toString(16).padStart(4, '0')

/** CRC-16 (polynomial 0x1021, initial value 0xFFFF) of all bytes except the check itself. */
internal fun crc(data: ByteArray): Int {
    var crc = 0xFFFF
    for (index in data.indices) {
        if (index in 2 until HEADER_BYTES) continue
        crc = crc xor ((data[index].toInt() and 0xFF) shl 8)
        repeat(8) { crc = (crc shl 1 xor (if (crc and 0x8000 != 0) 0x1021 else 0)) and 0xFFFF }
    }
    return crc
}

/** 16 bits of a hash over everything that a payload depends on: contract, model file, prompt, base, text. */
private fun binding(codec: Codec, contract: Contract, promptIds: IntArray?, base: Base?, text: ByteArray?): Int {
    val parts = arrayListOf(contract.identity.hexToBytes())
    if (codec == Codec.COMPACT || codec == Codec.PORTABLE) parts += ModelFile.hash
    if (promptIds != null) {
        if (promptIds.any { it < 0 }) {
            throw AnchorRangeException("prompt: expected ids of 0 and more, found others; give the tokenizer's ids")
        }
        parts += byteArrayOf('P'.code.toByte()) + ByteArray(4 * promptIds.size) {
            (promptIds[it / 4] shr 8 * (it % 4)).toByte()
        }
    }
    if (base != null) parts += byteArrayOf('B'.code.toByte()) + sha256(base.data)
    if (text != null) parts += byteArrayOf('W'.code.toByte()) + text
    return uint16(sha256(*parts.toTypedArray()), 0)
}

/** The big-endian 16-bit integer at an offset. */
internal fun uint16(data: ByteArray, at: Int): Int =
    (data[at].toInt() and 0xFF shl 8) or (data[at + 1].toInt() and 0xFF)
