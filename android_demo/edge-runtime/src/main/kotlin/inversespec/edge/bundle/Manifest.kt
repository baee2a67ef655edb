package inversespec.edge.bundle

import inversespec.edge.*
import inversespec.edge.text.Json
import inversespec.edge.text.JsonException

internal const val MANIFEST = "bundle.json"
internal const val TOKENIZER = "tokenizer.json"
internal const val TEMPLATE = "chat_template.json"

/** Size in bytes and SHA-256 in hex of a file, as stated by the manifest or as found. */
internal class FileRecord(val size: Long, val sha256: String)

/** Dimensions of a model, as far as the engine needs them. */
internal class ModelShape(val id: String, val layers: Int, val kvHeads: Int, val headDim: Int, val vocabSize: Int)

/**
 * A variant of the model: its ONNX file, relative to the bundle, and the records of graphs and weights.
 *
 * @param portable the ONNX file whose logits agree across processors; null in a bundle of an earlier version.
 */
internal class Variant(val graph: String, val portable: String?, val files: Map<String, FileRecord>)

/** The parsed and validated content of `bundle.json`. Not responsible for the files that it lists. */
internal class Manifest private constructor(
    val model: ModelShape,
    val context: Int,
    val contract: Contract,
    val defaultVariant: String,
    val variants: Map<String, Variant>,
    val files: Map<String, FileRecord>,
    val notSureFrom: Double?,
    val askFrom: Double?,
) {
    /** Records of the files of a variant; of all files for null. */
    fun records(variant: String?): Map<String, FileRecord> {
        val wanted = if (variant == null) variants.values else listOf(variants.getValue(variant))
        return files + wanted.flatMap { it.files.toList() }
    }

    /**
     * SHA-256 of everything that decides a variant's logits: the contract and its files' hashes. Payloads of codec
     * predictive state its first byte.
     */
    fun fingerprint(variant: String): ByteArray {
        val files = variants.getValue(variant).files.toSortedMap().map { (name, record) ->
            "${Json.quote(name)}: ${Json.quote(record.sha256)}"
        }
        val text = "[\"${contract.identity}\", {${files.joinToString(", ")}}, \"unrounded\"]"
        return sha256(text.toByteArray(Charsets.US_ASCII))
    }

    companion object {
        /** Maximum size of a manifest in bytes; a usual one has a few kilobytes. */
        const val MAX_BYTES = 4 shl 20
        private const val SCHEMA = 1L

        fun parse(data: ByteArray): Manifest {
            val value = try {
                Json.parse(data)
            } catch (error: JsonException) {
                throw BundleSchemaException("$MANIFEST: ${error.message}. Copy the bundle again.")
            }
            val top = Section(value as? Map<*, *> ?: fail("an object", value), "")
            if (top.any("schema") != SCHEMA) {
                fail("schema $SCHEMA", top.any("schema"), "Convert the model again, or update this app.")
            }
            val variants = top.section("variants").run { names().associateWith { variant(section(it)) } }
            val default = top.text("default_variant")
            if (default !in variants) fail("default_variant among ${variants.keys.sorted()}", default)
            val files = records(top.section("files"))
            for (name in listOf(TOKENIZER, TEMPLATE)) {
                if (name !in files) fail("$name among files", files.keys.sorted())
            }
            val model = top.section("model").run {
                ModelShape(
                    text("id"),
                    positive("num_hidden_layers", 1 shl 10),
                    positive("num_key_value_heads", 1 shl 10),
                    positive("head_dim", 1 shl 13),
                    positive("vocab_size", 1 shl 22),
                )
            }
            val contract = top.section("contract").run {
                val special = section("special").run { names().associateWith { whole(it).toInt() } }
                val ends = texts("ends")
                for (name in ends ?: Contract.DEFAULT_ENDS) {
                    if (name !in special) fail("contract.special with $name", special.keys)
                }
                val contents = any("contents")
                if (contents != CONTENTS) {
                    fail("contract.contents of ${CONTENTS}", contents, "Update this app.")
                }
                Contract(positive("vocab_size"), text("vocab_hash"), special, text("template_hash"), ends)
            }
            val (notSureFrom, askFrom) = listOf("not_sure_from", "ask_from").map(top::share)
            return Manifest(model, top.positive("context"), contract, default, variants, files, notSureFrom, askFrom)
        }

        /** True for a relative path that stays inside its folder. */
        fun isInside(path: String): Boolean =
            path.isNotEmpty() && path.split('/').none { it.isEmpty() || it == "." || it == ".." } &&
                path.none { it == '\\' || it == ':' || it == '\u0000' }

        /** Throws where a listed file is missing or its size or SHA-256 differs. */
        fun check(place: String, expected: FileRecord, found: FileRecord?) {
            if (found == null) {
                throw BundleFileException(
                    "$place: $MANIFEST lists this file, but it is missing. Copy the bundle again.",
                )
            }
            if (found.size != expected.size) {
                throw BundleFileException(
                    "$place: expected ${expected.size} bytes, found ${found.size}. Copy the bundle again.",
                )
            }
            if (found.sha256 != expected.sha256) {
                throw BundleHashException(
                    "$place: expected SHA-256 ${expected.sha256}, found ${found.sha256}: " +
                        "the file was changed. Copy the bundle again.",
                )
            }
        }

        private fun variant(section: Section): Variant {
            val graph = section.text("graph")
            val files = records(section.section("files"))
            val portable = if (section.any("portable") == null) null else section.text("portable")
            for (path in listOfNotNull(graph, portable)) {
                if (path !in files) fail("$path among ${section.name}.files", files.keys.sorted())
            }
            return Variant(graph, portable, files)
        }

        private fun records(section: Section): Map<String, FileRecord> = section.names().associateWith { path ->
            if (!isInside(path)) fail("a path inside the bundle", path)
            section.section(path).run { FileRecord(whole("size"), text("sha256")) }
        }

        private fun fail(expected: String, found: Any?, remedy: String = "Copy the bundle again."): Nothing =
            throw BundleSchemaException("$MANIFEST: expected $expected, found ${found.toString().take(80)}. $remedy")
    }

    /** A JSON object of the manifest, with its path for error messages. */
    private class Section(private val map: Map<*, *>, val name: String) {
        fun names(): List<String> = map.keys.map { it as String }

        fun any(field: String): Any? = map[field]

        fun section(field: String): Section {
            val found = map[field] as? Map<*, *> ?: fail("an object in ${label(field)}", map[field])
            return Section(found, label(field))
        }

        fun text(field: String): String = map[field] as? String ?: fail("text in ${label(field)}", map[field])

        /** The texts of a list; null where there is no such field. */
        fun texts(field: String): List<String>? = map[field]?.let { value ->
            (value as? List<*>)?.map { it as? String ?: fail("texts in ${label(field)}", it) }
                ?: fail("a list in ${label(field)}", value)
        }

        fun whole(field: String): Long = map[field] as? Long ?: fail("a whole number in ${label(field)}", map[field])

        /** [most]: for sizes, several times that of any published model. */
        fun positive(field: String, most: Int = Int.MAX_VALUE): Int = whole(field).takeIf { it in 1..most }?.toInt()
            ?: fail("${label(field)} from 1 to $most", map[field])

        /** A number from 0 to 1; null where there is no such field. */
        fun share(field: String): Double? = map[field]?.let { value ->
            (value as? Number)?.toDouble()?.takeIf { it in 0.0..1.0 } ?: fail("${label(field)} between 0 and 1", value)
        }

        private fun label(field: String) = if (name.isEmpty()) field else "$name.$field"
    }
}
