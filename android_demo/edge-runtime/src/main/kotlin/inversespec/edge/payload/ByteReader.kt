package inversespec.edge.payload

import inversespec.edge.MalformedPayloadException
import inversespec.edge.TruncatedPayloadException

/**
 * A bounds-checked cursor over bytes. Every read names the field that it reads, for the error message.
 *
 * @property at offset of the next byte.
 */
internal class ByteReader(private val data: ByteArray, var at: Int = 0) {
    val left: Int get() = data.size - at

    fun byte(field: String): Int = take(1, field)[0].toInt() and 0xFF

    /** The next [count] bytes; throws TruncatedPayloadException where fewer are left. */
    fun take(count: Int, field: String): ByteArray {
        if (count > left) {
            throw TruncatedPayloadException(
                "$field: expected $count bytes at byte $at, found $left; the payload was cut short: fetch it again",
            )
        }
        at += count
        return data.copyOfRange(at - count, at)
    }

    fun rest(): ByteArray = take(left, "the rest")

    /** An unsigned LEB128 integer of at most [most], in its shortest form. */
    fun varint(field: String, most: Int): Int {
        val start = at
        var value = 0L
        for (index in 0 until MAX_VARINT_BYTES) {
            val byte = byte(field)
            value = value or ((byte and 0x7F).toLong() shl 7 * index)
            if (byte < 0x80) {
                if (byte == 0 && index > 0) {
                    throw MalformedPayloadException(
                        "$field: expected the shortest form of an integer at byte $start, found padding",
                    )
                }
                if (value > most) {
                    throw MalformedPayloadException("$field: expected at most $most at byte $start, found $value")
                }
                return value.toInt()
            }
        }
        throw MalformedPayloadException(
            "$field: expected an integer of at most $MAX_VARINT_BYTES bytes at byte $start, found more",
        )
    }

    private companion object {
        const val MAX_VARINT_BYTES = 5
    }
}
