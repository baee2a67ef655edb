package inversespec.edge

import inversespec.edge.bundle.BundleFolder
import inversespec.edge.bundle.BundleImport
import java.io.File
import java.io.InputStream

/**
 * One precision of a model.
 *
 * @property bytes size of its graph and weights.
 */
data class VariantInfo(val name: String, val bytes: Long)

/**
 * What a bundle's `bundle.json` says.
 *
 * @property id of the model, as its maker named it.
 * @property context most tokens of prompt and answer together.
 * @property variant the one that is open, or the bundle's default where none is.
 * @property variants all of them, in the order of their names.
 * @property commonBytes size of the files that every variant needs.
 * @property contract what a payload for this bundle must be made for; a payload carries [contractTag] of it.
 * @property cacheBytesPerToken memory the model takes for each token of prompt and answer.
 */
data class BundleInfo(
    val dir: File,
    val id: String,
    val context: Int,
    val variant: String,
    val variants: List<VariantInfo>,
    val commonBytes: Long,
    val contract: Contract,
    val cacheBytesPerToken: Long,
) {
    val contractTag: String get() = contract.tag

    /** Bytes of all files. */
    val bytes: Long get() = commonBytes + variants.sumOf { it.bytes }

    /**
     * An upper bound, in bytes, of what running a variant with so many tokens takes: its weights twice, for the
     * runtime lays out those of large multiplications anew, and the cache, which grows by doubling.
     */
    fun memoryNeeded(variant: String = this.variant, tokens: Int = context): Long =
        2 * variants.first { it.name == variant }.bytes + 2 * tokens * cacheBytesPerToken
}

/** Called with how much is done and the whole, in bytes; the whole is -1 where it is not known. */
typealias Progress = (done: Long, total: Long) -> Unit

/**
 * Model bundles as folders and archives. Everything here reads or writes files: call it off the main thread. What
 * can be cancelled raises java.util.concurrent.CancellationException then.
 *
 * ```kotlin
 * val folder = Bundles.importZip(File("tiny-qwen.zip"), File(filesDir, "bundles"), expectedSha256 = null)
 * println(Bundles.inspect(folder).variants)
 * ```
 */
object Bundles {
    /**
     * What a folder's `bundle.json` says; reads nothing else.
     *
     * @throws BundleMissingException where the folder is no bundle, [BundleSchemaException] where it is broken.
     */
    fun inspect(dir: File): BundleInfo = BundleFolder.open(dir).info()

    /**
     * Checks size and SHA-256 of a bundle's files.
     *
     * @param variant only the files this one needs; null for all.
     * @throws BundleException naming the file that is missing, cut or changed.
     */
    fun verify(dir: File, variant: String? = null, cancel: Cancel = Cancel(), onProgress: Progress = { _, _ -> }) =
        BundleFolder.open(dir).verify(variant, cancel, onProgress)

    /**
     * Unpacks a bundle's zip below [into], checks every file, and only then gives it its place: the folder this
     * returns is whole, and one of the same name that was there before is replaced. Whatever goes wrong, and
     * where [cancel] says so, nothing is left behind.
     *
     * The archive may hold the bundle at its top or in one folder. Files that `bundle.json` does not list are
     * left out. No entry can lie outside [into], and no more than [maxBytes] are written.
     *
     * @param expectedSha256 SHA-256 (hex) the archive must have; null where that is not known.
     * @throws BundleException naming what is wrong.
     */
    fun importZip(
        zip: InputStream,
        into: File,
        expectedSha256: String? = null,
        totalBytes: Long = -1,
        maxBytes: Long = MAX_BUNDLE_BYTES,
        cancel: Cancel = Cancel(),
        onProgress: Progress = { _, _ -> },
    ): File = BundleImport(into, maxBytes, cancel, onProgress).zip(zip, expectedSha256, totalBytes)

    /** The same from a file. */
    fun importZip(
        zip: File,
        into: File,
        expectedSha256: String? = null,
        cancel: Cancel = Cancel(),
        onProgress: Progress = { _, _ -> },
    ): File = BundleImport(into, MAX_BUNDLE_BYTES, cancel, onProgress).zip(zip, expectedSha256)

    /**
     * The same for a bundle that is a folder: its listed files are copied below [into].
     *
     * @param open opens one of the bundle's files by its relative path, null where there is none; so that a
     *   folder need not be one of the file system (Android's document trees are not).
     */
    fun importFiles(
        into: File,
        cancel: Cancel = Cancel(),
        onProgress: Progress = { _, _ -> },
        open: (path: String) -> InputStream?,
    ): File = BundleImport(into, MAX_BUNDLE_BYTES, cancel, onProgress).files(open)

    /** No bundle is larger than this. */
    const val MAX_BUNDLE_BYTES = 16L shl 30
}
