package inversespec.edge.text

/** The byte-to-character mapping of byte-level BPE: printable Latin-1 maps to itself, the others from U+0100 on. */
internal object ByteAlphabet {
    val CHARS: CharArray
    private val BYTES = HashMap<Char, Byte>()

    init {
        val printable = ('!'..'~') + ('\u00A1'..'\u00AC') + ('\u00AE'..'\u00FF')
        val plain = printable.map { it.code }.toSet()
        var other = 256
        CHARS = CharArray(256) { if (it in plain) it.toChar() else (other++).toChar() }
        for ((byte, char) in CHARS.withIndex()) BYTES[char] = byte.toByte()
    }

    /** The bytes of a vocabulary entry; null where a character maps to no byte. */
    fun bytes(token: String): ByteArray? {
        val result = ByteArray(token.length)
        for ((index, char) in token.withIndex()) result[index] = BYTES[char] ?: return null
        return result
    }
}
