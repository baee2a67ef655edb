package inversespec.edge.text

import inversespec.edge.BundleSchemaException
import inversespec.edge.TokenBytes
import java.text.Normalizer
import java.util.regex.Pattern

/**
 * A byte-level BPE tokenizer, from its `tokenizer.json`. Added tokens are matched first; the rest is normalised
 * to NFC, split by the file's regular expression and encoded by byte-level BPE.
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
    private val normalizes: Boolean
    private val splits: List<Pattern>

    /** Ids of special tokens, which are not part of an answer's text. */
    val specialIds: Set<Int>

    /** Number of ids, including added tokens. */
    val size: Int

    init {
        file.expect("decoder", "ByteLevel")
        normalizes = file.value("normalizer") != null
        if (normalizes) file.expect("normalizer", "NFC")
        splits = splits(file.fields("pre_tokenizer"))
        specialIds = readAdded(file.list("added_tokens"))
        // Longest first, so that the longer of two names with a common prefix matches.
        names = addedIds.keys.sortedByDescending { it.length }.joinToString("|", transform = Pattern::quote)
            .takeIf { it.isNotEmpty() }?.let(Pattern::compile)
        val model = file.fields("model")
        model.check("type", "BPE")
        for (name in listOf("dropout", "unk_token")) model.check(name, null)
        for (name in listOf("byte_fallback", "ignore_merges")) if (model.value(name) == true) model.check(name, false)
        for (name in listOf("continuing_subword_prefix", "end_of_word_suffix")) {
            if (model.value(name) != "") model.check(name, null)
        }
        val vocab = model.map("vocab")
        val ids = vocab.mapValues { (token, number) -> id(number, token) }
        val most = (ids.values.maxOrNull() ?: -1) + 1
        val bytes = arrayOfNulls<ByteArray>(most)
        for ((token, id) in ids) bytes[id] = ByteAlphabet.bytes(token) ?: refuse("byte-level token", token)
        starts = IntArray(most + 1)
        for (id in 0 until most) starts[id + 1] = starts[id] + (bytes[id]?.size ?: 0)
        pool = ByteArray(starts[most])
        for (id in 0 until most) bytes[id]?.copyInto(pool, starts[id])
        size = (ids.values.toHashSet() + added.keys).size
        bpe = Bpe(
            IntArray(256) { byte ->
                // Some vocabularies lack the bytes that no text of theirs had; the Python library drops these too.
                ids[ByteAlphabet.CHARS[byte].toString()] ?: Bpe.ABSENT
            },
            merges(model.list("merges"), ids),
        )
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
        for (piece in pieces) bpe.encode(piece.toByteArray(Charsets.UTF_8)) { id -> ordinary(id, out) }
    }

    /** Adds an id that merges gave; for one that is an added token's too, those of its bytes. */
    private fun ordinary(id: Int, out: IdBuffer) {
        val name = added[id] ?: return out.add(id)
        for (byte in name) bpe.encode(byteArrayOf(byte), out::add)
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

    /** Adds the added tokens; returns the ids of the special ones. */
    private fun readAdded(tokens: List<Any?>): Set<Int> {
        val special = HashSet<Int>()
        for (each in tokens) {
            val token = Fields(each, "added_tokens")
            val content = token.value("content") as? String ?: refuse("text in added_tokens.content", each)
            for (name in listOf("single_word", "lstrip", "rstrip", "normalized")) token.check(name, false)
            val id = id(token.value("id"), content)
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
        private const val MAX_IDS = 1 shl 24

        /** Parses a `tokenizer.json`; throws [BundleSchemaException] naming an unsupported setting. */
        fun fromJson(data: ByteArray): Tokenizer {
            val value = try {
                Json.parse(data)
            } catch (error: JsonException) {
                throw BundleSchemaException("tokenizer.json: ${error.message}. Copy the bundle again.")
            }
            return Tokenizer(Fields(value, "tokenizer.json"))
        }

        private fun refuse(expected: String, found: Any?): Nothing = throw BundleSchemaException(
            "tokenizer: expected a $expected, found ${found.toString().take(80)}. " +
                "Use a model with a byte-level BPE vocabulary.",
        )
    }
}
