package inversespec.edge.bundle

import inversespec.edge.*
import inversespec.edge.client.RangeRequest
import java.io.ByteArrayOutputStream
import java.io.EOFException
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.io.RandomAccessFile
import java.net.URI
import java.net.URISyntaxException
import java.util.concurrent.CancellationException

/**
 * Downloads a bundle into a folder of bundles: into a hidden staging folder that outlives the process, in ranges of
 * [chunkBytes], file by file; verifies each and installs all at once.
 *
 * What is on disk is never requested again, so a process that is killed at any point costs at most one chunk.
 *
 * @param url the folder that holds `bundle.json`, or `bundle.json` itself.
 */
internal class BundleFetcher(
    private val url: String,
    private val into: File,
    private val maxBytes: Long,
    replace: Boolean,
    private val cancel: CancelSignal,
    private val onProgress: Progress,
    private val request: RangeRequest = RangeRequest(cancel),
    private val chunkBytes: Long = CHUNK_BYTES,
    private val storage: Storage = Storage("fetch", into),
) {
    private val base = address(url)
    private val stage = stage(url, into)
    private val folder = File(stage, "bundle")
    private val importer = BundleImporter(into, maxBytes, replace, cancel, onProgress)
    private var done = 0L
    private var total = -1L

    fun fetch(): File {
        synchronized(ACTIVE) {
            if (!ACTIVE.add(stage)) throw UsageException("fetch: expected one download of $url, found one running")
        }
        try {
            if (!folder.isDirectory && !folder.mkdirs()) {
                throw BundleFileException("fetch: expected a folder that can be written, found $into")
            }
            val records = manifest().records(null)
            total = records.values.sumOf { it.size }
            if (total > maxBytes) throw BundleFileException("fetch: expected at most $maxBytes bytes, found $total")
            importer.checkReplaces(folder)
            val held = records.keys.sumOf { name -> maxOf(File(folder, name).length(), part(name).length()) }
            storage.require(total - held)
            for ((name, record) in records) file(name, record)
            val target = importer.install(folder)
            stage.deleteRecursively()
            return target
        } catch (error: IOException) {
            throw BundleFileException("fetch: expected room for $total bytes, found: ${error.message}", error)
        } finally {
            synchronized(ACTIVE) { ACTIVE.remove(stage) }
        }
    }

    /** The manifest as the server has it now. Files of another one are dropped. */
    private fun manifest(): Manifest {
        val found = ByteArrayOutputStream()
        var complete = false
        while (!complete) {
            request.get(remote(MANIFEST), 0, Manifest.MAX_BYTES + 1L) { _, stream ->
                found.reset()
                copy(stream, Manifest.MAX_BYTES + 1L) { buffer, count -> found.write(buffer, 0, count) }
                complete = true
            }
        }
        if (found.size() > Manifest.MAX_BYTES) {
            throw BundleSchemaException("$url: expected a $MANIFEST of at most ${Manifest.MAX_BYTES} bytes, found more")
        }
        val manifest = Manifest.parse(found.toByteArray())
        val local = File(folder, MANIFEST)
        if (!local.isFile || !local.readBytes().contentEquals(found.toByteArray())) {
            folder.deleteRecursively()
            folder.mkdirs()
            val part = File(stage, MANIFEST)
            part.writeBytes(found.toByteArray())
            if (!part.renameTo(local)) throw IOException("$local cannot be written")
        }
        return manifest
    }

    private fun part(name: String) = File(folder, "$name$PART")

    /** Downloads one file, unless it is there: a file with its final name was verified. */
    private fun file(name: String, record: FileRecord) {
        val target = File(folder, name)
        if (!(target.isFile && target.length() == record.size)) {
            target.parentFile!!.mkdirs()
            val part = part(name)
            RandomAccessFile(part, "rw").use { file ->
                if (file.length() > record.size) file.setLength(0)
                do {
                    if (file.length() < record.size) chunk(file, name, record)
                } while (file.length() < record.size)
            }
            val found = part.inputStream().use { Bundle.hash(it, cancel) {} }
            if (found.sha256 != record.sha256) {
                part.delete()
                throw BundleHashException(
                    "$name: expected SHA-256 ${record.sha256}, found ${found.sha256}: it was changed on its way or " +
                        "on the server. Fetch it again.",
                )
            }
            if (!part.renameTo(target)) throw IOException("$target cannot be written")
        }
        done += record.size
        onProgress(done, total)
    }

    /** Appends the next range to a part, or the whole file where the server serves no ranges. */
    private fun chunk(file: RandomAccessFile, name: String, record: FileRecord) {
        val start = file.length()
        request.get(remote(name), start, minOf(chunkBytes, record.size - start)) { whole, stream ->
            if (whole) file.setLength(0)
            val from = if (whole) 0 else start
            file.seek(from)
            copy(stream, if (whole) record.size else minOf(chunkBytes, record.size - start)) { buffer, count ->
                storage.require(0)
                file.write(buffer, 0, count)
                if (!whole) request.progressed()
                onProgress(done + file.filePointer, total)
            }
            // On the disk before the next range is asked for: a part's length says what need not be asked for again.
            file.fd.sync()
            if (file.length() == from || (whole && file.length() < record.size)) throw EOFException()
        }
    }

    private inline fun copy(from: InputStream, most: Long, write: (ByteArray, Int) -> Unit) {
        val buffer = ByteArray(BUFFER_BYTES)
        var count = 0L
        while (count < most) {
            if (cancel.isCancelled) throw CancellationException("cancelled")
            val read = from.read(buffer, 0, minOf(BUFFER_BYTES.toLong(), most - count).toInt())
            if (read < 0) return
            write(buffer, read)
            count += read
        }
    }

    private fun remote(name: String): URI = base.resolve(URI(null, null, "./$name", null).rawPath)

    companion object {
        private const val CHUNK_BYTES = 4L shl 20
        private const val BUFFER_BYTES = 1 shl 16

        private const val STAGE = ".fetch-"
        private const val PART = ".part"
        private val ACTIVE = HashSet<File>()

        /** The hidden folder in which a download is kept until it is complete. */
        fun stage(url: String, into: File): File =
            File(into.absoluteFile, STAGE + sha256("${address(url)}".toByteArray()).toHex().take(16))

        private fun address(url: String): URI = try {
            URI(url.removeSuffix(MANIFEST).trimEnd('/') + "/").also { requireNotNull(it.host) }
        } catch (error: URISyntaxException) {
            throw UsageException("url: expected https://host/folder, found ${url.take(100)}")
        } catch (error: IllegalArgumentException) {
            throw UsageException("url: expected https://host/folder, found ${url.take(100)}")
        }
    }
}
