package inversespec.edge

import inversespec.edge.text.Json

/** How messages become prompt ids: they give ordinary tokens only. */
internal const val CONTENTS = "plain"

/**
 * Identity of what cloud and device must share: vocabulary, special token ids, chat template.
 *
 * @property vocabSize upper bound of anchor ids: they are in [0, vocabSize) and none of [special].
 * @property vocabHash SHA-256 (hex) of the base vocabulary and merges.
 * @property special ids of special tokens by their text: those both sides use, and all below [vocabSize].
 * @property templateHash SHA-256 (hex) of the compiled chat template.
 * @property ends names in [special] that end an answer; null for [END_OF_TEXT] and [IM_END].
 */
data class Contract @JvmOverloads constructor(
    val vocabSize: Int,
    val vocabHash: String,
    val special: Map<String, Int>,
    val templateHash: String,
    val ends: List<String>? = null,
) {
    /** SHA-256 (hex) of the contract as ASCII JSON with sorted keys and no spaces. */
    val identity: String by lazy {
        val ids = special.toSortedMap().map { (name, id) -> "${Json.quote(name)}:$id" }
        val stops = ends?.let { names -> "\"ends\":[${names.joinToString(",") { Json.quote(it) }}]," } ?: ""
        val text = "{\"contents\":\"$CONTENTS\",$stops\"special\":{${ids.joinToString(",")}}," +
            "\"template_hash\":${Json.quote(templateHash)},\"vocab_hash\":${Json.quote(vocabHash)},\"vocab_size\":$vocabSize}"
        sha256(text.toByteArray(Charsets.US_ASCII)).toHex()
    }

    /** The first byte of [identity] as 2 hex digits; payloads carry this byte. */
    val tag: String get() = identity.substring(0, 2)

    /** Ids of the tokens that end an answer. */
    val eosIds: Set<Int> get() = (ends ?: DEFAULT_ENDS).map { special.getValue(it) }.toSet()

    /** Special ids below [vocabSize], which no anchor can have. */
    internal val reserved: Set<Int> by lazy { special.values.filter { it < vocabSize }.toSet() }

    override fun toString(): String =
        "${identity.take(12)} (vocabulary ${vocabHash.take(8)} of $vocabSize, template ${templateHash.take(8)})"

    companion object {
        const val END_OF_TEXT = "<|endoftext|>"
        const val IM_START = "<|im_start|>"
        const val IM_END = "<|im_end|>"
        internal val DEFAULT_ENDS = listOf(END_OF_TEXT, IM_END)
    }
}
