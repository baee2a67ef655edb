package inversespec.edge.text

/** Incremental detokenizer: emits each character as soon as its last byte has arrived. */
internal class TextStream(private val tokenizer: Tokenizer) {
    private val decoder = Utf8Decoder()

    /** The text that a token completes: empty inside a character and for special tokens. */
    fun push(id: Int): String = if (id in tokenizer.specialIds) "" else decoder.push(tokenizer.tokenBytes(id))

    /** U+FFFD where the answer ends inside a character, else empty. */
    fun flush(): String = decoder.flush()
}
