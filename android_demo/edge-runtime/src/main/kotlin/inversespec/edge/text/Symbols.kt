package inversespec.edge.text

/** The tokens that a text consists of before anything is merged, and the bytes that tokens are written as. */
internal interface Symbols {
    /** The bytes of a vocabulary's entry; null where it is none. */
    fun bytes(token: String): ByteArray?

    /** Ids of a text's symbols. What the vocabulary has no token for has no id. */
    fun ids(piece: String): IntArray

    /** The token of a single byte; null for a byte without one. */
    fun of(byte: Byte): Int?
}

/** Byte-level BPE: a symbol is a byte of the text in UTF-8. */
internal class ByteSymbols(vocab: Map<String, Int>) : Symbols {
    // Some vocabularies lack the bytes that no text of theirs had; the Python library drops these too.
    private val ids = Array(256) { vocab[ByteAlphabet.CHARS[it].toString()] }

    override fun bytes(token: String): ByteArray? = ByteAlphabet.bytes(token)

    override fun ids(piece: String): IntArray = piece.toByteArray(Charsets.UTF_8).asList().mapNotNull(::of).toIntArray()

    override fun of(byte: Byte): Int? = ids[byte.toInt() and 0xFF]
}

/**
 * SentencePiece's BPE: a symbol is a character, with [SPACE] for a space, or each byte of one that is no token.
 *
 * @property refuse called for a byte without a token, of which a text could not be written.
 */
internal class CharacterSymbols(vocab: Map<String, Int>, refuse: (String) -> Nothing) : Symbols {
    private val characters = HashMap<Int, Int>()
    private val byteIds = IntArray(256) { byte -> vocab["<0x%02X>".format(byte)] ?: refuse("none for byte $byte") }

    init {
        for ((token, id) in vocab) {
            if (token.isNotEmpty() && token.codePointCount(0, token.length) == 1) characters[token.codePointAt(0)] = id
        }
    }

    override fun bytes(token: String): ByteArray = when (val byte = BYTE.matchEntire(token)) {
        null -> token.replace(SPACE, ' ').toByteArray(Charsets.UTF_8)
        else -> byteArrayOf(byte.groupValues[1].toInt(16).toByte())
    }

    override fun ids(piece: String): IntArray {
        val text = piece.replace(' ', SPACE)
        val out = ArrayList<Int>(text.length)
        var at = 0
        while (at < text.length) {
            val point = text.codePointAt(at)
            val next = at + Character.charCount(point)
            val id = characters[point]
            if (id != null) out.add(id) else text.substring(at, next).toByteArray(Charsets.UTF_8).mapTo(out, ::of)
            at = next
        }
        return out.toIntArray()
    }

    override fun of(byte: Byte): Int = byteIds[byte.toInt() and 0xFF]

    private companion object {
        const val SPACE = '\u2581'
        val BYTE = Regex("<0x([0-9A-F]{2})>")
    }
}
