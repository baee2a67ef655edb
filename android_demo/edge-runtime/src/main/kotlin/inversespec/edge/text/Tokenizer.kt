package inversespec.edge.text

import inversespec.edge.BundleSchemaException
import inversespec.edge.TokenBytes
import java.text.Normalizer
import java.util.regex.Pattern

/**
 * A BPE tokenizer, from its `tokenizer.json`. Added tokens are matched first; the rest is normalised to NFC, split by
 * the file's regular expression and encoded by byte-level BPE, or by SentencePiece's with a token for every byte
 * (Gemma's), whose symbols of the user are found before anything is merged.
 *
 * Any other setting in the file is refused by name on loading, so that ids are never silently wrong.
 */
internal class Tokenizer private constructor(file: Fields) : TokenBytes {
    private val pool: ByteArray
    private val starts: IntArray
    private val bpe: Bpe
    private val added = HashMap<Int, ByteArray>()
    private val addedIds = HashMap<String, Int>()
    private val names: Pattern?

    /** SentencePiece's symbols of the user, which are text: ids by content. */
    private val symbolIds = HashMap<String, Int>()
    private val symbolNames: Pattern?
    private val symbols: Symbols
    private val normalizes: Boolean
    private val splits: List<Pattern>

    /** Ids of special tokens, which are not part of an answer's text. */
    val specialIds: Set<Int>

    /** Number of ids, including added tokens. */
    val size: Int

    init {
        val model = file.fields("model")
        model.check("type", "BPE")
        val characters = model.value("byte_fallback") == true
        normalizes = !characters && file.value("normalizer") != null
        if (normalizes) file.expect("normalizer", "NFC")
        if (characters) checkSpaces(file) else file.expect("decoder", "ByteLevel")
        splits = if (characters) emptyList() else splits(file.fields("pre_tokenizer"))
        model.check("dropout", null)
        if (!characters) model.check("unk_token", null)
        if (model.value("ignore_merges") == true) model.check("ignore_merges", false)
        for (name in listOf("continuing_subword_prefix", "end_of_word_suffix")) {
            if (model.value(name) != "") model.check(name, null)
        }
        val vocab = model.map("vocab")
        val ids = vocab.mapValues { (token, number) -> id(number, token) }
        val most = (ids.values.maxOrNull() ?: -1) + 1
        specialIds = readAdded(file.list("added_tokens"), if (characters) ids else emptyMap())
        names = pattern(addedIds.keys + symbolIds.keys)
        symbolNames = pattern(symbolIds.keys)
        symbols = if (characters) CharacterSymbols(ids) { refuse("token for every byte", it) } else ByteSymbols(ids)
        val bytes = arrayOfNulls<ByteArray>(most)
        for ((token, id) in ids) bytes[id] = symbols.bytes(token) ?: refuse("byte-level token", token)
        starts = IntArray(most + 1)
        for (id in 0 until most) starts[id + 1] = starts[id] + (bytes[id]?.size ?: 0)
        pool = ByteArray(starts[most])
        for (id in 0 until most) bytes[id]?.copyInto(pool, starts[id])
        size = (ids.values.toHashSet() + added.keys).size
        bpe = Bpe(symbols, merges(model.list("merges"), ids))
    }

    override fun encode(text: String): IntArray {
        val out = IdBuffer()
        ordinary(withNames(text, "", out), out)
        return out.toArray()
    }

    /**
     * Ids of texts in a row. Names of added tokens in a content are text; in other pieces they are found in each by
     * itself. What stands between two of them is encoded as one text.
     */
    fun encode(pieces: List<Piece>): IntArray {
        val out = IdBuffer()
        var open = ""
        for (piece in pieces) open = if (piece.isContent) open + piece.text else withNames(piece.text, open, out)
        ordinary(open, out)
        return out.toArray()
    }

    /** Encodes [open] and a text behind it as far as its last added token, and returns what stands after that one. */
    private fun withNames(text: String, open: String, out: IdBuffer): String {
        var before = open
        var at = 0
        val matcher = names?.matcher(text)
        while (matcher != null && matcher.find()) {
            if (matcher.group() in symbolIds) continue // text, which is found again in what surrounds it
            ordinary(before + text.substring(at, matcher.start()), out)
            out.add(addedIds.getValue(matcher.group()))
            before = ""
            at = matcher.end()
        }
        return before + text.substring(at)
    }

    override fun tokenBytes(id: Int): ByteArray = added[id]
        ?: if (id in 0 until starts.size - 1) pool.copyOfRange(starts[id], starts[id + 1]) else ByteArray(0)

    /** Text of token ids without special tokens; invalid UTF-8 becomes U+FFFD. */
    fun decode(ids: IntArray): String = TextStream(this).run { ids.joinToString("") { push(it) } + flush() }

    private fun ordinary(text: String, out: IdBuffer) {
        if (text.isEmpty()) return
        var pieces = listOf(if (normalizes) Normalizer.normalize(text, Normalizer.Form.NFC) else text)
        for (split in splits) pieces = pieces.flatMap { isolate(it, split) }
        if (symbolNames != null) pieces = pieces.flatMap { isolate(it, symbolNames) }
        for (piece in pieces) {
            val symbol = symbolIds[piece]
            if (symbol != null) out.add(symbol) else bpe.encode(piece) { id -> ordinary(id, out) }
        }
    }

    /** Adds an id that merges gave; for one that is an added token's too, those of its bytes. */
    private fun ordinary(id: Int, out: IdBuffer) {
        val name = added[id] ?: return out.add(id)
        for (byte in name) symbols.of(byte)?.let(out::add)
    }

    /** Splits a text into the matches of a pattern and the parts between them. */
    private fun isolate(text: String, split: Pattern): List<String> {
        val result = ArrayList<String>()
        val matcher = split.matcher(text)
        var at = 0
        while (matcher.find()) {
            if (matcher.start() > at) result.add(text.substring(at, matcher.start()))
            if (matcher.end() > matcher.start()) result.add(matcher.group())
            at = matcher.end()
        }
        if (at < text.length) result.add(text.substring(at))
        return result
    }

    /** Requires what SentencePiece's files have: a space is one sign, and nothing is put before a text or split. */
    private fun checkSpaces(file: Fields) {
        val normalizer = file.fields("normalizer")
        normalizer.check("type", "Replace")
        normalizer.check("pattern", mapOf("String" to " "))
        normalizer.check("content", "\u2581")
        if (file.value("pre_tokenizer") != null) { // at spaces, of which none is left
            val split = file.fields("pre_tokenizer")
            split.check("type", "Split")
            split.check("pattern", mapOf("String" to " "))
        }
        file.expect("decoder", "Sequence")
        val steps = file.fields("decoder").list("decoders").map { Fields(it, "decoder").value("type") }
        if (steps != listOf("Replace", "ByteFallback", "Fuse")) refuse("decoder of byte tokens", steps)
    }

    private fun splits(pre: Fields): List<Pattern> {
        pre.check("type", "Sequence")
        val steps = pre.list("pretokenizers").map { Fields(it, "pre_tokenizer") }
        val last = steps.lastOrNull() ?: refuse("pre_tokenizer that ends in ByteLevel", "none")
        last.check("type", "ByteLevel")
        last.check("add_prefix_space", false)
        last.check("use_regex", false)
        return steps.dropLast(1).map { step ->
            step.check("type", "Split")
            step.check("behavior", "Isolated")
            step.check("invert", false)
            val regex = step.map("pattern")["Regex"] as? String ?: refuse("Split with a Regex", step.value("pattern"))
            if (regex !in KnownSplits.EXPRESSIONS) refuse("split that is known", regex)
            SplitRegex.compile(regex)
        }
    }

    /** Adds the added tokens, of which [texts] may have some as text; returns the ids of the special ones. */
    private fun readAdded(tokens: List<Any?>, texts: Map<String, Int>): Set<Int> {
        val special = HashSet<Int>()
        for (each in tokens) {
            val token = Fields(each, "added_tokens")
            val content = token.value("content") as? String ?: refuse("text in added_tokens.content", each)
            for (name in listOf("single_word", "lstrip", "rstrip", "normalized")) token.check(name, false)
            val id = id(token.value("id"), content)
            if (token.value("special") != true && texts[content] == id) {
                symbolIds[content] = id
                continue
            }
            addedIds[content] = id
            added[id] = content.toByteArray(Charsets.UTF_8)
            if (token.value("special") == true) special.add(id)
        }
        return special
    }

    private fun merges(list: List<Any?>, ids: Map<String, Int>): MergeTable {
        val result = MergeTable(list.size)
        for ((rank, each) in list.withIndex()) {
            val pair = if (each is String) each.split(' ') else each as? List<*>
            if (pair?.size != 2) refuse("merge of two tokens", each)
            val (left, right) = pair.map { ids[it] ?: refuse("merge of known tokens", each) }
            result.put(left, right, rank, ids["${pair[0]}${pair[1]}"] ?: refuse("merge to a known token", each))
        }
        return result
    }

    private fun id(value: Any?, token: String): Int =
        (value as? Long)?.takeIf { it in 0 until MAX_IDS }?.toInt() ?: refuse("id of token $token", value)

    /** A JSON object of the file, with checked access to its fields. */
    private class Fields(value: Any?, private val where: String) {
        private val map = value as? Map<*, *> ?: refuse("object in $where", value)

        fun value(name: String): Any? = map[name]

        fun fields(name: String) = Fields(map[name], name)

        fun map(name: String): Map<String, Any?> {
            @Suppress("UNCHECKED_CAST") // names of JSON objects are strings
            return map[name] as? Map<String, Any?> ?: refuse("object in $where.$name", map[name])
        }

        fun list(name: String): List<Any?> = map[name] as? List<*> ?: refuse("list in $where.$name", map[name])

        fun check(name: String, expected: Any?) {
            if (map[name] != expected) refuse("$where.$name of $expected", map[name])
        }

        fun expect(name: String, type: String) = fields(name).check("type", type)
    }

    /** A growing array of ids. */
    private class IdBuffer {
        private var ids = IntArray(64)
        private var size = 0

        fun add(id: Int) {
            if (size == ids.size) ids = ids.copyOf(2 * size)
            ids[size++] = id
        }

        fun toArray(): IntArray = ids.copyOf(size)
    }

    companion object {
        // Of a few bytes of text an id makes as many places; no published vocabulary has a third of these.
        private const val MAX_IDS = 1 shl 20

        /** Parses a `tokenizer.json`; throws [BundleSchemaException] naming an unsupported setting. */
        fun fromJson(data: ByteArray): Tokenizer {
            val value = try {
                Json.parse(data)
            } catch (error: JsonException) {
                throw BundleSchemaException("tokenizer.json: ${error.message}. Copy the bundle again.")
            }
            return Tokenizer(Fields(value, "tokenizer.json"))
        }

        // Longest first, so that the longer of two names with a common prefix matches.
        private fun pattern(names: Set<String>): Pattern? =
            names.sortedByDescending { it.length }.joinToString("|", transform = Pattern::quote)
                .takeIf { it.isNotEmpty() }?.let(Pattern::compile)

        private fun refuse(expected: String, found: Any?): Nothing = throw BundleSchemaException(
            "tokenizer: expected a $expected, found ${found.toString().take(80)}. " +
                "Use a model with a vocabulary of bytes: Qwen2.5, SmolLM2, Llama 3, Gemma 3.",
        )
    }
}
