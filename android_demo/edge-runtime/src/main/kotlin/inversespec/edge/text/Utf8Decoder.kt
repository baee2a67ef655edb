package inversespec.edge.text

/**
 * Incremental UTF-8 decoder: emits each character as soon as its last byte has arrived, and U+FFFD for invalid
 * sequences.
 *
 * Implemented here because the decoders of Java and Android replace invalid sequences by different numbers of U+FFFD,
 * and the text must equal the Python runtime's.
 */
internal class Utf8Decoder {
    private var point = 0
    private var missing = 0

    // Bounds of the next continuation byte; narrower after some lead bytes, to exclude overlong forms and surrogates.
    private var lower = 0x80
    private var upper = 0xBF

    /** The text that these bytes complete. */
    fun push(bytes: ByteArray): String {
        val out = StringBuilder(bytes.size)
        for (signed in bytes) {
            val byte = signed.toInt() and 0xFF
            if (missing > 0) {
                if (byte in lower..upper) {
                    point = point shl 6 or (byte and 0x3F)
                    bounds(0x80, 0xBF)
                    if (--missing == 0) out.appendCodePoint(point)
                    continue
                }
                missing = 0
                bounds(0x80, 0xBF)
                out.append(REPLACEMENT)
            }
            first(byte, out)
        }
        return out.toString()
    }

    /** U+FFFD where the data ends inside a character, else empty. */
    fun flush(): String {
        val left = if (missing > 0) REPLACEMENT.toString() else ""
        missing = 0
        bounds(0x80, 0xBF)
        return left
    }

    private fun first(byte: Int, out: StringBuilder) {
        when (byte) {
            in 0x00..0x7F -> out.append(byte.toChar())
            in 0xC2..0xDF -> begin(byte and 0x1F, 1)
            in 0xE0..0xEF -> {
                begin(byte and 0x0F, 2)
                if (byte == 0xE0) lower = 0xA0
                if (byte == 0xED) upper = 0x9F
            }
            in 0xF0..0xF4 -> {
                begin(byte and 0x07, 3)
                if (byte == 0xF0) lower = 0x90
                if (byte == 0xF4) upper = 0x8F
            }
            else -> out.append(REPLACEMENT)
        }
    }

    private fun begin(bits: Int, more: Int) {
        point = bits
        missing = more
    }

    private fun bounds(low: Int, high: Int) {
        lower = low
        upper = high
    }

    private companion object {
        const val REPLACEMENT = '\uFFFD'
    }
}
