package inversespec.edge.payload

/** Stands before the first position of a response, as a context. */
internal const val START = -1

/** Follows the last token of a response, as if it were one. */
internal const val END = -2

/** One number for every value of every feature, in 1/16 bit; but escapeBits are sizes. The order is the file's. */
internal class Weights(reader: Reader) {
    val seen = reader.numbers(16)
    val unseen = reader.numbers(16)
    val rank = reader.numbers(18)
    val promptCount = reader.numbers(5)
    val answerCount = reader.numbers(4)
    val scale = reader.numbers(4)
    val source = reader.numbers(4)
    val pair = reader.numbers(17)
    val triple = reader.numbers(13)
    val promptMatch = reader.numbers(19)
    val answerMatch = reader.numbers(19)
    val endPair = reader.numbers(17)
    val endLine = reader.numbers(19)
    val endAge = reader.numbers(7)
    val escape = reader.numbers(10)
    val escapeBits = reader.numbers(24)

    private fun Reader.numbers(count: Int): IntArray {
        val bytes = take(2 * count, "weights")
        return IntArray(count) { (bytes[2 * it].toInt() and 0xFF) or (bytes[2 * it + 1].toInt() shl 8) }
    }
}

/** What follows a context: token (or [END]) to class, in the order of the file. */
internal typealias Followers = Map<Int, Int>

/**
 * Statistics of one vocabulary's tokens; empty for a vocabulary without any.
 *
 * classes: how common a token is, 1 to 15, in order of id. pairs: by context token. triples: by [context] of two.
 * alike: token to the token it is compared as. breaks: tokens that end a line.
 */
internal class Words(
    val classes: Map<Int, Int> = emptyMap(),
    private val pairs: Map<Int, Followers> = emptyMap(),
    private val triples: Map<Long, Followers> = emptyMap(),
    val alike: Map<Int, Int> = emptyMap(),
    val breaks: Set<Int> = emptySet(),
) {
    fun pairs(last: Int): Followers = pairs[last] ?: emptyMap()

    fun triples(before: Int, last: Int): Followers = triples[context(before, last)] ?: emptyMap()

    companion object {
        fun context(before: Int, last: Int): Long = before.toLong() shl 32 or (last.toLong() and 0xFFFFFFFF)
    }
}

/** Weights and words for one vocabulary: what is known about its ids before a payload is read. */
internal class Prior(val weights: Weights, val words: Words)

/** The file `model.bin` of the payload format, described in payload/SPEC.md. */
internal object ModelFile {
    private val bytes: ByteArray by lazy {
        checkNotNull(ModelFile::class.java.getResourceAsStream("model.bin")) {
            "model.bin is not beside the classes: build the library again"
        }.use { it.readBytes() }
    }

    /** The check of every compact payload leans on it. */
    val hash: ByteArray by lazy { sha256(bytes) }

    private val content: Content by lazy { Content(Reader(bytes)) }

    /** The prior of a vocabulary. Only its size picks it: a wrong guess costs bytes, never correctness. */
    fun priorOf(vocabSize: Int): Prior = if (vocabSize == content.vocabSize) content.trained else content.plain

    private class Content(private val reader: Reader) {
        val plain = Prior(Weights(reader), Words())
        private val weights = Weights(reader)
        val vocabSize = reader.varint("vocabulary size", 1 shl 24)
        val trained = Prior(weights, words())

        private fun words(): Words {
            val lexicon = ArrayList<Int>()
            val classes = LinkedHashMap<Int, Int>()
            val alike = HashMap<Int, Int>()
            val breaks = HashSet<Int>()
            var token = -1
            repeat(reader.varint("lexicon", 1 shl 16)) {
                token += reader.varint("distance", 1 shl 24)
                val flags = reader.byte("class")
                lexicon.add(token)
                if (flags and 15 != 0) classes[token] = flags and 15
                if (flags and 16 != 0) breaks.add(token)
                if (flags and 32 != 0) alike[token] = lexicon[reader.varint("alike", 1 shl 16)]
            }
            val order = listOf(END) + lexicon
            val contexts = listOf(START) + lexicon
            val pairs = HashMap<Int, Followers>()
            for (context in contexts) {
                val followers = followers(order)
                if (followers.isNotEmpty()) pairs[context] = followers
            }
            val triples = HashMap<Long, Followers>()
            var first = 0
            repeat(reader.varint("triples", 1 shl 16)) {
                first += reader.varint("first", 1 shl 16)
                val second = reader.varint("second", 1 shl 16)
                triples[Words.context(contexts[first], contexts[second])] = followers(order)
            }
            return Words(classes, pairs, triples, alike, breaks)
        }

        private fun followers(order: List<Int>): Followers {
            val result = LinkedHashMap<Int, Int>()
            var at = 0
            repeat(reader.varint("followers", 1 shl 12)) {
                val entry = reader.varint("follower", 1 shl 24)
                at += entry shr 4
                result[order[at]] = (entry and 15) + 1
            }
            return result
        }
    }
}
