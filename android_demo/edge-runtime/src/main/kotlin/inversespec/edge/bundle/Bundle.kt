package inversespec.edge.bundle

import inversespec.edge.*
import inversespec.edge.text.ChatTemplate
import inversespec.edge.text.Tokenizer
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.OutputStream
import java.security.MessageDigest
import java.util.concurrent.CancellationException

/** A bundle in a folder: its manifest, and access to the files that the manifest lists. */
internal class Bundle private constructor(val dir: File, val manifest: Manifest) {
    fun info(variant: String = manifest.defaultVariant) = BundleInfo(
        dir,
        manifest.model.id,
        manifest.context,
        checked(variant),
        manifest.variants.toSortedMap().map { (name, each) -> VariantInfo(name, each.files.values.sumOf { it.size }) },
        manifest.files.values.sumOf { it.size },
        manifest.contract,
        manifest.model.run { 2L * layers * kvHeads * headDim * Float.SIZE_BYTES },
        manifest.notSureFrom,
        manifest.askFrom,
    )

    /**
     * The ONNX file of a variant, or the one whose logits agree across processors. Throws BundleFileException where a
     * bundle of an earlier version has no such one, or where its weights lie in files that the manifest does not
     * list. Their key stands in the graph's bytes, however they are encoded: one that is not followed by a name in the
     * form that converters write is refused too.
     */
    fun graph(variant: String, portable: Boolean = false): File {
        val found = manifest.variants.getValue(checked(variant))
        val graph = (if (portable) found.portable else found.graph) ?: throw BundleFileException(
            "$dir: expected a portable graph of variant $variant, found a bundle of an earlier version. " +
                "Convert the model again, or ask for codec compact.",
        )
        val folder = graph.substring(0, graph.lastIndexOf('/') + 1)
        val data = String(read(graph), Charsets.ISO_8859_1) // a character for each byte
        val keys = WEIGHTS.findAll(data).toList()
        val odd = keys.map { data.substring(it.range.last + 1, minOf(it.range.last + 1 + it.groupValues[1][0].code, data.length)) }
            .firstOrNull { folder + it !in found.files }
            ?: "a name that cannot be read".takeIf { Regex("location").findAll(data).count() != keys.size }
        if (odd != null) {
            throw BundleFileException(
                "${File(dir, graph)}: expected weights in files that $MANIFEST lists, found ${odd.take(80)}. " +
                    "Convert the model again, or fetch the bundle from whom you trust.",
            )
        }
        return File(dir, graph)
    }

    fun tokenizer(): Tokenizer = Tokenizer.fromJson(read(TOKENIZER))

    fun template(): ChatTemplate = ChatTemplate.fromJson(read(TEMPLATE))

    /** Verifies size and SHA-256 of the files of a variant, and what its graph reads; of all variants for null. */
    fun verify(variant: String?, cancel: CancelSignal, onProgress: Progress) {
        val records = manifest.records(variant?.let(::checked))
        val total = records.values.sumOf { it.size }
        var before = 0L
        for ((name, expected) in records) {
            val file = File(dir, name)
            // The size first: a truncated file need not be read.
            if (!file.isFile || file.length() != expected.size) {
                Manifest.check("$file", expected, if (file.isFile) FileRecord(file.length(), "") else null)
            }
            val found = try {
                file.inputStream().use { hash(it, cancel) { done -> onProgress(before + done, total) } }
            } catch (error: IOException) {
                throw BundleFileException("$file: expected a readable file, found: ${error.message}", error)
            }
            Manifest.check("$file", expected, found)
            before += found.size
        }
        for (name in variant?.let(::listOf) ?: manifest.variants.keys) {
            graph(name)
            if (manifest.variants.getValue(name).portable != null) graph(name, portable = true)
        }
    }

    private fun checked(variant: String): String {
        if (variant in manifest.variants) return variant
        throw BundleVariantException(
            "$dir: expected a variant of ${manifest.variants.keys.sorted().joinToString()}, found $variant",
        )
    }

    private fun read(name: String): ByteArray = try {
        File(dir, name).readBytes()
    } catch (error: IOException) {
        throw BundleFileException("${File(dir, name)}: expected a readable file, found: ${error.message}", error)
    }

    companion object {
        private const val BUFFER_BYTES = 1 shl 16

        /** StringStringEntryProto of a tensor's external data: the key, and the length of the file's name. */
        private val WEIGHTS = Regex("\\x0a\\x08location\\x12([\\x01-\\x7f])")

        /** Reads a folder's `bundle.json`, and no other file. */
        fun open(dir: File): Bundle {
            val file = File(dir, MANIFEST)
            if (!file.isFile) {
                val found = if (dir.isDirectory) "a folder without $MANIFEST" else "no such folder"
                throw BundleMissingException("$dir: expected a model bundle, found $found")
            }
            if (file.length() > Manifest.MAX_BYTES) {
                throw BundleSchemaException(
                    "$file: expected at most ${Manifest.MAX_BYTES} bytes, found ${file.length()}",
                )
            }
            return try {
                Bundle(dir, Manifest.parse(file.readBytes()))
            } catch (error: IOException) {
                throw BundleFileException("$file: expected a readable file, found: ${error.message}", error)
            }
        }

        /** Reads a stream to its end, copies it to [to], and returns its size and SHA-256. */
        fun hash(
            from: InputStream,
            cancel: CancelSignal,
            to: OutputStream? = null,
            onDone: (Long) -> Unit,
        ): FileRecord {
            val digest = MessageDigest.getInstance("SHA-256")
            val buffer = ByteArray(BUFFER_BYTES)
            var done = 0L
            while (true) {
                if (cancel.isCancelled) throw CancellationException("cancelled")
                val count = from.read(buffer)
                if (count < 0) return FileRecord(done, digest.digest().toHex())
                digest.update(buffer, 0, count)
                to?.write(buffer, 0, count)
                done += count
                onDone(done)
            }
        }
    }
}
