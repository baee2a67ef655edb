package inversespec.edge.bundle

import inversespec.edge.*
import java.io.File
import java.io.FilterInputStream
import java.io.IOException
import java.io.InputStream
import java.security.MessageDigest
import java.util.UUID
import java.util.zip.ZipEntry
import java.util.zip.ZipInputStream

/**
 * Imports a bundle into a folder of bundles: writes it to a hidden staging folder, verifies it, then renames it.
 * Hashes are computed while the bytes are written, so nothing is read twice.
 *
 * @param replace whether another bundle of the same name is replaced; otherwise throws BundleExistsException.
 */
internal class BundleImporter(
    private val into: File,
    private val maxBytes: Long,
    private val replace: Boolean,
    private val cancel: CancelSignal,
    private val onProgress: Progress,
    private val storage: Storage = Storage("import", into),
) {
    private var written = 0L

    fun importZip(file: File, expectedSha256: String?): File = try {
        file.inputStream().buffered().use { importZip(it, expectedSha256, file.length()) }
    } catch (error: IOException) {
        throw BundleFileException("$file: expected a readable archive, found: ${error.message}", error)
    }

    fun importZip(stream: InputStream, expectedSha256: String?, totalBytes: Long): File = staged { stage ->
        storage.require(maxOf(0, totalBytes)) // the archive's own, the least that its content takes
        val counted = HashingStream(stream)
        val found = HashMap<String, FileRecord>()
        val zip = ZipInputStream(counted)
        while (true) {
            val entry = zip.nextEntry ?: break
            if (entry.isDirectory) continue
            if (found.size >= MAX_ENTRIES) fail("an archive of at most $MAX_ENTRIES files", "more")
            val name = checked(entry)
            if (name in found) fail("every file once", "$name twice")
            found[name] = write(File(stage, name), zip, maxBytes) { onProgress(counted.count, totalBytes) }
        }
        // The central directory follows the files and is part of the archive's hash.
        val rest = ByteArray(1 shl 16)
        while (counted.read(rest) >= 0) {
            if (counted.count > maxBytes) fail("an archive of at most $maxBytes bytes", "more")
        }
        if (expectedSha256 != null && !expectedSha256.trim().equals(counted.sha256(), ignoreCase = true)) {
            throw BundleHashException(
                "archive: expected SHA-256 ${expectedSha256.trim()}, found ${counted.sha256()}: " +
                    "it was changed on its way. Fetch it again.",
            )
        }
        // At the root, or in one folder.
        val manifests = found.keys.filter { it.substringAfter('/') == MANIFEST }
        if (manifests.size != 1) {
            val what = "${manifests.size} in ${found.size} files"
            fail("a zip archive with one $MANIFEST, at its top or in one folder", what)
        }
        val prefix = manifests[0].removeSuffix(MANIFEST)
        val root = File(stage, prefix)
        val records = Bundle.open(root).manifest.records(null)
        for ((name, expected) in records) Manifest.check(name, expected, found[prefix + name])
        for (name in found.keys) {
            val listed = name.startsWith(prefix) && name.removePrefix(prefix).let { it == MANIFEST || it in records }
            if (!listed) File(stage, name).delete()
        }
        install(root)
    }

    fun importFiles(open: (path: String) -> InputStream?): File = staged { stage ->
        fun copy(name: String, most: Long, onDone: (Long) -> Unit): FileRecord? =
            open(name)?.use { write(File(stage, name), it, most, onDone) }
        copy(MANIFEST, Manifest.MAX_BYTES.toLong()) {} ?: fail("a folder with $MANIFEST", "none")
        val records = Bundle.open(stage).manifest.records(null)
        checkReplaces(stage)
        val total = records.values.sumOf { it.size }
        storage.require(total)
        var before = 0L
        for ((name, expected) in records) {
            Manifest.check(name, expected, copy(name, expected.size) { onProgress(before + it, total) })
            before += expected.size
        }
        install(stage)
    }

    /** Runs an import in a hidden staging folder, which is deleted whatever the outcome. */
    private fun staged(import: (File) -> File): File {
        if (!into.isDirectory && !into.mkdirs()) fail("a folder to import into", "$into, which cannot be made")
        val stage = File(into, "$STAGE${UUID.randomUUID()}")
        synchronized(ACTIVE) {
            // Staging folders of imports whose process was killed.
            val abandoned = into.listFiles().orEmpty().filter { it.name.startsWith(STAGE) && it !in ACTIVE }
            abandoned.forEach { it.deleteRecursively() }
            ACTIVE.add(stage)
        }
        try {
            if (!stage.mkdir()) fail("a folder that can be written", "$into")
            return import(stage)
        } catch (error: IOException) {
            throw BundleFileException(
                "import: expected a readable bundle and room for it, found: ${error.message}",
                error,
            )
        } finally {
            stage.deleteRecursively()
            synchronized(ACTIVE) { ACTIVE.remove(stage) }
        }
    }

    private fun write(file: File, from: InputStream, most: Long, onDone: (Long) -> Unit): FileRecord {
        file.parentFile!!.mkdirs()
        val before = written
        return file.outputStream().use { out ->
            Bundle.hash(from, cancel, out) { done ->
                written = before + done
                if (done > most || written > maxBytes) {
                    fail("at most ${minOf(most, maxBytes)} bytes", "more in ${file.name}")
                }
                storage.require(0)
                onDone(done)
            }
        }
    }

    private fun checked(entry: ZipEntry): String {
        if (!Manifest.isInside(entry.name)) fail("paths inside the archive's folder", entry.name)
        return entry.name
    }

    /** The final folder of the bundle in [from]. */
    private fun target(from: File): File {
        val id = Bundle.open(from).manifest.model.id
        val name = id.substringAfterLast('/').replace(Regex("[^A-Za-z0-9._-]"), "-").trimStart('.').take(64)
        return File(into, name.ifEmpty { "model" })
    }

    /**
     * Throws where the bundle whose manifest is in [from] would replace another one, which was not asked for. The same
     * one may be installed again: its manifest lists the hashes of all its files.
     */
    fun checkReplaces(from: File) {
        val target = target(from)
        if (replace || !target.exists()) return
        val installed = File(target, MANIFEST).let { if (it.isFile) sha256(it.readBytes()).toHex() else "none" }
        val offered = sha256(File(from, MANIFEST).readBytes()).toHex()
        if (installed != offered) throw BundleExistsException(target, installed, offered)
    }

    /** Renames a verified folder to its final name; deletes a previous one once the new one is in place. */
    fun install(from: File): File {
        checkReplaces(from)
        val target = target(from)
        val old = File(into, "$STAGE${UUID.randomUUID()}")
        val replaced = target.exists()
        if (replaced && !target.renameTo(old)) fail("a bundle that can be replaced", "$target in use")
        if (!from.renameTo(target)) {
            if (replaced) old.renameTo(target)
            fail("a folder that can be renamed to $target", "that it cannot")
        }
        old.deleteRecursively()
        return target
    }

    private fun fail(expected: String, found: String): Nothing =
        throw BundleFileException("import: expected $expected, found $found. Fetch the bundle again.")

    /** Counts and hashes the bytes that are read. */
    private class HashingStream(stream: InputStream) : FilterInputStream(stream) {
        private val digest = MessageDigest.getInstance("SHA-256")
        private val hash by lazy { digest.digest().toHex() }
        var count = 0L
            private set

        fun sha256(): String = hash

        override fun read(): Int = super.read().also {
            if (it >= 0) {
                digest.update(it.toByte())
                count++
            }
        }

        override fun read(buffer: ByteArray, start: Int, length: Int): Int = super.read(buffer, start, length).also {
            if (it > 0) {
                digest.update(buffer, start, it)
                count += it
            }
        }
    }

    private companion object {
        const val MAX_ENTRIES = 256
        const val STAGE = ".import-"
        val ACTIVE = HashSet<File>()
    }
}
