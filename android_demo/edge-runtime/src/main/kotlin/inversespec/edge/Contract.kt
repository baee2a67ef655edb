package inversespec.edge

import inversespec.edge.text.Json

/**
 * Identity of what cloud and device must share: vocabulary, special token ids, chat template.
 *
 * @property vocabSize number of ordinary tokens; anchor ids are in [0, vocabSize).
 * @property vocabHash SHA-256 (hex) of the base vocabulary and merges.
 * @property special ids of the special tokens that both sides use, by their text.
 * @property templateHash SHA-256 (hex) of the compiled chat template.
 */
data class Contract(
    val vocabSize: Int,
    val vocabHash: String,
    val special: Map<String, Int>,
    val templateHash: String,
) {
    /** SHA-256 (hex) of the contract as ASCII JSON with sorted keys and no spaces. */
    val identity: String by lazy {
        val ids = special.toSortedMap().map { (name, id) -> "${Json.quote(name)}:$id" }
        val text = "{\"special\":{${ids.joinToString(",")}},\"template_hash\":${Json.quote(templateHash)}," +
            "\"vocab_hash\":${Json.quote(vocabHash)},\"vocab_size\":$vocabSize}"
        sha256(text.toByteArray(Charsets.US_ASCII)).toHex()
    }

    /** The first byte of [identity] as 2 hex digits; payloads carry this byte. */
    val tag: String get() = identity.substring(0, 2)

    /** Ids of the tokens that end an answer. */
    val eosIds: Set<Int> get() = setOf(special.getValue(END_OF_TEXT), special.getValue(IM_END))

    override fun toString(): String =
        "${identity.take(12)} (vocabulary ${vocabHash.take(8)} of $vocabSize, template ${templateHash.take(8)})"

    companion object {
        const val END_OF_TEXT = "<|endoftext|>"
        const val IM_START = "<|im_start|>"
        const val IM_END = "<|im_end|>"
    }
}
