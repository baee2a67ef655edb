package inversespec.edge

/** The tokenizer interface that the payload codecs use. */
interface TokenBytes {
    /** The bytes of one token; empty for an id without a token. */
    fun tokenBytes(id: Int): ByteArray

    /** Token ids of a text. */
    fun encode(text: String): IntArray
}
