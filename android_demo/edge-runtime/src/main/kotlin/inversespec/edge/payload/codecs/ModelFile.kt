package inversespec.edge.payload.codecs

import inversespec.edge.payload.ByteReader
import inversespec.edge.sha256

/** The file `model.bin` of the payload format, as specified in payload/SPEC.md. */
internal object ModelFile {
    private const val RESOURCE = "/inversespec/edge/payload/model.bin"

    private val bytes: ByteArray by lazy {
        checkNotNull(ModelFile::class.java.getResourceAsStream(RESOURCE)) {
            "$RESOURCE is not on the class path: build the library again"
        }.use { it.readBytes() }
    }

    /** SHA-256 of the file; the check of every compact payload depends on it. */
    val hash: ByteArray by lazy { sha256(bytes) }

    private val content: Content by lazy { Content(ByteReader(bytes)) }

    /** The prior for a vocabulary, chosen by its size only: a wrong choice costs bytes, never correctness. */
    fun priorOf(vocabSize: Int): Prior = if (vocabSize == content.vocabSize) content.trained else content.plain

    private class Content(private val reader: ByteReader) {
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
