package inversespec.edge.payload

import inversespec.edge.MalformedPayloadException
import inversespec.edge.TruncatedPayloadException
import java.nio.Buffer
import java.nio.ByteBuffer
import java.nio.CharBuffer
import java.nio.charset.CodingErrorAction
import java.security.MessageDigest

/** A cursor over bytes that never reads past their end. Each read says what it reads, for the error's text. */
internal class Reader(private val data: ByteArray, var at: Int = 0) {
    val left: Int get() = data.size - at

    fun byte(what: String): Int = take(1, what)[0].toInt() and 0xFF

    /** The next [count] bytes. */
    fun take(count: Int, what: String): ByteArray {
        if (count > left) {
            throw TruncatedPayloadException(
                "$what: expected $count bytes at byte $at, found $left; the payload was cut short: fetch it again",
            )
        }
        at += count
        return data.copyOfRange(at - count, at)
    }

    fun rest(): ByteArray = take(left, "the rest")

    /** An unsigned LEB128 integer of at most [most], in its shortest form. */
    fun varint(what: String, most: Int): Int {
        val start = at
        var value = 0L
        for (index in 0 until MAX_VARINT_BYTES) {
            val byte = byte(what)
            value = value or ((byte and 0x7F).toLong() shl 7 * index)
            if (byte < 0x80) {
                if (byte == 0 && index > 0) {
                    throw MalformedPayloadException(
                        "$what: expected the shortest form of an integer at byte $start, found padding",
                    )
                }
                if (value > most) {
                    throw MalformedPayloadException("$what: expected at most $most at byte $start, found $value")
                }
                return value.toInt()
            }
        }
        throw MalformedPayloadException(
            "$what: expected an integer of at most $MAX_VARINT_BYTES bytes at byte $start, found more",
        )
    }

    private companion object {
        const val MAX_VARINT_BYTES = 5
    }
}

internal fun sha256(vararg parts: ByteArray): ByteArray =
    MessageDigest.getInstance("SHA-256").run {
        parts.forEach(::update)
        digest()
    }

private const val HEX = "0123456789abcdef"

internal fun ByteArray.toHex(): String = buildString(2 * size) {
    for (byte in this@toHex) append(HEX[byte.toInt() shr 4 and 15]).append(HEX[byte.toInt() and 15])
}

internal fun String.hexToBytes(): ByteArray = ByteArray(length / 2) {
    (Character.digit(this[2 * it], 16) shl 4 or Character.digit(this[2 * it + 1], 16)).toByte()
}

/** The text of UTF-8 bytes; [refuse] is told where the first byte is that is none, and does not return. */
internal inline fun strictUtf8(data: ByteArray, refuse: (at: Int) -> Nothing): String {
    val input = ByteBuffer.wrap(data)
    val out = CharBuffer.allocate(data.size)
    val decoder = Charsets.UTF_8.newDecoder()
        .onMalformedInput(CodingErrorAction.REPORT)
        .onUnmappableCharacter(CodingErrorAction.REPORT)
    val result = decoder.decode(input, out, true)
    if (result.isError) refuse(input.position())
    // Through the base class: the overriding method of newer Java's is not there on Android 8.
    (out as Buffer).flip()
    return out.toString()
}
