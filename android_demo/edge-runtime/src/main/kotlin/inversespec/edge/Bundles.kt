package inversespec.edge

import inversespec.edge.bundle.*
import inversespec.edge.client.RangeRequest
import java.io.File
import java.io.InputStream

/**
 * A variant of a model: one precision of its weights.
 *
 * @property bytes size of graph and weights.
 */
data class VariantInfo(val name: String, val bytes: Long)

/**
 * Description of a bundle, from its `bundle.json`.
 *
 * @property id the model's id, as its author named it.
 * @property context maximum number of tokens of prompt and answer together.
 * @property variant the open variant, or the bundle's default where none is open.
 * @property variants all variants, sorted by name.
 * @property commonBytes size of the files that every variant needs.
 * @property contract the contract that payloads for this bundle must match; payloads carry its [contractTag].
 * @property notSureFrom the doubt from which on an answer is better not shown, as measured beside the cloud's model.
 * @property askFrom the device's own doubt above which it asks the cloud, as measured. Null where they were not.
 * @property cacheBytesPerToken memory of the KV cache per token of prompt and answer.
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
    val notSureFrom: Double? = null,
    val askFrom: Double? = null,
) {
    val contractTag: String get() = contract.tag

    /** Size of all files, in bytes. */
    val bytes: Long get() = commonBytes + variants.sumOf { it.bytes }

    /**
     * Upper bound on the memory of running a variant with [tokens] tokens, in bytes: twice its weights, as ONNX
     * Runtime repacks those of large multiplications, and the cache, which grows by doubling.
     */
    @JvmOverloads
    fun memoryNeeded(variant: String = this.variant, tokens: Int = context): Long =
        2 * variants.first { it.name == variant }.bytes + 2 * tokens * cacheBytesPerToken
}

/** Callback with progress in bytes; total is -1 where it is unknown. */
typealias Progress = (done: Long, total: Long) -> Unit

/**
 * Operations on model bundles as folders and archives. All of them read or write files: call them off the main
 * thread. A cancelled operation throws java.util.concurrent.CancellationException.
 *
 * ```kotlin
 * val folder = Bundles.importZip(File("tiny-qwen.zip"), File(filesDir, "bundles"), expectedSha256 = null)
 * println(Bundles.inspect(folder).variants)
 * ```
 */
object Bundles {
    /**
     * Reads a folder's `bundle.json`, and no other file.
     *
     * @throws BundleMissingException where the folder is no bundle, [BundleSchemaException] where the file is invalid.
     */
    @JvmStatic
    fun inspect(dir: File): BundleInfo = Bundle.open(dir).info()

    /**
     * Verifies size and SHA-256 of a bundle's files.
     *
     * @param variant verify only the files of this variant; null for all files.
     * @throws BundleException naming the file that is missing, truncated or changed.
     */
    @JvmStatic
    @JvmOverloads
    fun verify(
        dir: File,
        variant: String? = null,
        cancel: CancelSignal = CancelSignal(),
        onProgress: Progress = { _, _ -> },
    ) = Bundle.open(dir).verify(variant, cancel, onProgress)

    /**
     * Extracts a bundle's zip archive below [into], verifies every file, then renames the folder to its final
     * name. Another bundle of the same name is replaced only with [replace]. On any failure and on cancellation nothing
     * is left behind, nor where the storage is too small.
     *
     * The archive may contain the bundle at its root or in one folder. Files that `bundle.json` does not list are
     * skipped. Entries outside [into] are refused, and at most [maxBytes] are written.
     *
     * @param expectedSha256 SHA-256 (hex) that the archive must have; null to skip this check.
     * @return the folder of the bundle.
     * @throws BundleExistsException where another bundle would be replaced, which was not asked for; BundleException
     *   naming any other fault.
     */
    @JvmStatic
    @JvmOverloads
    fun importZip(
        zip: InputStream,
        into: File,
        expectedSha256: String? = null,
        totalBytes: Long = -1,
        maxBytes: Long = MAX_BUNDLE_BYTES,
        replace: Boolean = false,
        cancel: CancelSignal = CancelSignal(),
        onProgress: Progress = { _, _ -> },
    ): File = BundleImporter(into, maxBytes, replace, cancel, onProgress).importZip(zip, expectedSha256, totalBytes)

    /** Imports a zip archive from a file. */
    @JvmStatic
    @JvmOverloads
    fun importZip(
        zip: File,
        into: File,
        expectedSha256: String? = null,
        replace: Boolean = false,
        cancel: CancelSignal = CancelSignal(),
        onProgress: Progress = { _, _ -> },
    ): File = BundleImporter(into, MAX_BUNDLE_BYTES, replace, cancel, onProgress).importZip(zip, expectedSha256)

    /**
     * Imports a bundle that is a folder: copies its listed files below [into], with the guarantees of [importZip].
     *
     * @param open opens a file of the bundle by relative path, or returns null where it does not exist. The
     *   folder may be outside the file system, such as an Android document tree.
     */
    @JvmStatic
    @JvmOverloads
    fun importFiles(
        into: File,
        replace: Boolean = false,
        cancel: CancelSignal = CancelSignal(),
        onProgress: Progress = { _, _ -> },
        open: (path: String) -> InputStream?,
    ): File = BundleImporter(into, MAX_BUNDLE_BYTES, replace, cancel, onProgress).importFiles(open)

    /**
     * Downloads a bundle below [into], with the guarantees of [importZip]: `bundle.json`, then each file that it lists, in
     * ranges. A download that ends early, because the process was killed, the connection broke or it was cancelled,
     * goes on where it stood with the next call for the same address; a server without ranges begins each file anew. A
     * server that sends less than 1 kB a second ends the call, which may be repeated later.
     *
     * @param url the folder that holds `bundle.json`, as a static server serves it. HTTPS, or this very device.
     * @param localCleartext as [ServiceClient.localCleartext].
     * @param onProgress also counts what an earlier call has downloaded.
     * @return the folder of the bundle.
     * @throws BundleExistsException before anything but `bundle.json` is downloaded, where another bundle would be
     *   replaced; BundleException naming another fault, also where the storage is too small; [CloudUnavailableException],
     *   [CloudRefusedException] where the server cannot be reached or refuses; java.util.concurrent.CancellationException.
     */
    @JvmStatic
    @JvmOverloads
    fun fetch(
        url: String,
        into: File,
        maxBytes: Long = MAX_BUNDLE_BYTES,
        replace: Boolean = false,
        localCleartext: Boolean = false,
        cancel: CancelSignal = CancelSignal(),
        onProgress: Progress = { _, _ -> },
    ): File {
        val request = RangeRequest(cancel, localCleartext = localCleartext)
        return BundleFetcher(url, into, maxBytes, replace, cancel, onProgress, request).fetch()
    }

    /** Deletes what unfinished calls of [fetch] for this address have downloaded. */
    @JvmStatic
    fun discardFetch(url: String, into: File) {
        BundleFetcher.stage(url, into).deleteRecursively()
    }

    /** Maximum size of a bundle in bytes. */
    const val MAX_BUNDLE_BYTES = 16L shl 30
}
