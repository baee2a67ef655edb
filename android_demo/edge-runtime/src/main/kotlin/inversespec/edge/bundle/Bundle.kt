package inversespec.edge.bundle

import inversespec.edge.BundleFileException
import inversespec.edge.BundleInfo
import inversespec.edge.BundleMissingException
import inversespec.edge.BundleSchemaException
import inversespec.edge.BundleVariantException
import inversespec.edge.CancelSignal
import inversespec.edge.Progress
import inversespec.edge.VariantInfo
import inversespec.edge.text.ChatTemplate
import inversespec.edge.text.Tokenizer
import inversespec.edge.toHex
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

    /** The ONNX file of a variant. */
    fun graph(variant: String): File = File(dir, manifest.variants.getValue(checked(variant)).graph)

    fun tokenizer(): Tokenizer = Tokenizer.fromJson(read(TOKENIZER))

    fun template(): ChatTemplate = ChatTemplate.fromJson(read(TEMPLATE))

    /** Verifies size and SHA-256 of the files of a variant; of all files for null. */
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
