package inversespec.app

import android.app.ActivityManager
import android.content.Context
import android.net.Uri
import inversespec.edge.BundleInfo
import inversespec.edge.Bundles
import inversespec.edge.Cancel
import inversespec.edge.EdgeException
import inversespec.edge.EdgeModel
import inversespec.edge.Options
import inversespec.edge.Progress
import java.io.File
import java.io.FileNotFoundException
import java.util.concurrent.Executor

/**
 * An installed bundle.
 *
 * @property info null where [problem] says why it cannot be used.
 * @property variant the one in use, or the bundle's own choice.
 */
data class Installed(
    val folder: File,
    val info: BundleInfo?,
    val problem: String?,
    val builtIn: Boolean,
    val inUse: Boolean,
    val variant: String,
)

/** Long work on files, with its progress in bytes; [total] is -1 where it is not known. */
data class Job(val title: String, val done: Long = 0, val total: Long = -1)

/** All that the Models screen shows. */
data class ModelsState(
    val installed: List<Installed> = emptyList(),
    val freeMemory: Long = 0,
    val job: Job? = null,
    val message: String? = null,
    val failed: Boolean = false,
)

/** The bundles on this phone, and the one model that is open. */
class ModelsDesk(private val context: Context, private val modelThread: Executor, private val fileThread: Executor) {
    val state = Live(ModelsState())
    private val root = File(context.filesDir, "bundles")
    private val choice = context.getSharedPreferences("model", Context.MODE_PRIVATE)
    private var cancel = Cancel()
    private var open: EdgeModel? = null

    /** Installs the bundle that rides in the app where this build's is not there yet. */
    fun start() = onModelThread {
        root.mkdirs()
        val shipped = shipped()
        if (shipped != null && folders().none { isShipped(it, shipped) }) {
            Bundles.importFiles(root) { path ->
                try {
                    context.assets.open("bundle/$path")
                } catch (missing: FileNotFoundException) {
                    null
                }
            }
        }
    }

    /** Reads again what is installed. */
    fun refresh() = onModelThread {}

    /**
     * The model in use, opened where it is not yet; on the model's thread only.
     *
     * Hashes are not computed again here: a bundle has its place in the app's own storage only after a check.
     */
    fun open(): EdgeModel {
        val wanted = state.value.installed.let { all -> all.firstOrNull { it.inUse } ?: all.firstOrNull { it.info != null } }
            ?: throw Notice(R.string.error_no_model)
        open?.let { if (it.info.dir == wanted.folder && it.info.variant == wanted.variant) return it }
        close()
        return EdgeModel.open(wanted.folder, Options(variant = wanted.variant, verifyHashes = false)).also { open = it }
    }

    private fun close() {
        open?.close()
        open = null
    }

    fun use(bundle: Installed, variant: String) = onModelThread {
        choice.edit().putString(FOLDER, bundle.folder.name).putString(VARIANT, variant).apply()
        close()
    }

    fun delete(bundle: Installed) = onModelThread {
        if (open?.info?.dir == bundle.folder) close()
        bundle.folder.deleteRecursively()
        say(context.getString(R.string.message_deleted, bundle.folder.name))
    }

    fun verify(bundle: Installed) = job(context.getString(R.string.job_verify, bundle.folder.name)) { cancel, progress ->
        Bundles.verify(bundle.folder, cancel = cancel, onProgress = progress)
        context.getString(R.string.message_verified, bundle.folder.name)
    }

    fun importZip(uri: Uri) = job(context.getString(R.string.job_import)) { cancel, progress ->
        val (name, size) = Intake.describe(context.contentResolver, uri)
        name?.let { retitle(context.getString(R.string.job_import_named, it)) }
        val stream = context.contentResolver.openInputStream(uri) ?: throw FileNotFoundException(uri.toString())
        val folder = stream.use {
            Bundles.importZip(it, root, totalBytes = size, cancel = cancel, onProgress = progress)
        }
        context.getString(R.string.message_imported, folder.name)
    }

    fun importFolder(tree: Uri) = job(context.getString(R.string.job_import)) { cancel, progress ->
        val documents = DocumentTree(context.contentResolver, tree)
        val folder = Bundles.importFiles(root, cancel, progress) { documents.open(it) }
        context.getString(R.string.message_imported, folder.name)
    }

    fun cancelJob() = cancel.cancel()

    /** One long piece of work on files at a time, on its own thread, with progress; [work] returns what to say. */
    private fun job(title: String, work: (Cancel, Progress) -> String) {
        if (state.value.job != null) return
        val mine = Cancel()
        cancel = mine
        state.update { it.copy(job = Job(title), message = null) }
        fileThread.execute {
            try {
                val words = work(mine) { done, total ->
                    state.update { it.copy(job = it.job?.copy(done = done, total = total)) }
                }
                say(words)
            } catch (error: Exception) {
                if (mine.isCancelled) say(context.getString(R.string.message_cancelled)) else fail(error)
            } catch (error: OutOfMemoryError) {
                fail(error)
            }
            state.update { it.copy(job = null) }
            // A bundle that was replaced by one of the same name must not stay open.
            onModelThread { close() }
        }
    }

    private fun retitle(title: String) = state.update { it.copy(job = it.job?.copy(title = title)) }

    private fun say(words: String) = state.update { it.copy(message = words, failed = false) }

    private fun fail(error: Throwable) {
        val words = context.explain(error)
        state.update { it.copy(message = words, failed = true) }
    }

    private fun onModelThread(work: () -> Unit) = modelThread.execute {
        try {
            work()
        } catch (error: Exception) {
            fail(error)
        }
        val installed = list()
        state.update { it.copy(installed = installed, freeMemory = freeMemory()) }
    }

    private fun list(): List<Installed> {
        val shipped = shipped()
        val chosen = choice.getString(FOLDER, null)
        val found = folders().map { folder ->
            val info: BundleInfo?
            var problem: String? = null
            info = try {
                Bundles.inspect(folder)
            } catch (error: EdgeException) {
                problem = error.message
                null
            }
            val inUse = folder.name == chosen && info != null
            val wish = if (inUse) choice.getString(VARIANT, null) else null
            val variant = info?.variants?.firstOrNull { it.name == wish }?.name ?: info?.variant.orEmpty()
            Installed(folder, info, problem, isShipped(folder, shipped), inUse, variant)
        }
        if (found.any { it.inUse }) return found
        val first = found.firstOrNull { it.builtIn } ?: found.firstOrNull { it.info != null }
        return found.map { it.copy(inUse = it === first) }
    }

    private fun folders(): List<File> =
        root.listFiles { file -> file.isDirectory && !file.name.startsWith(".") }.orEmpty().sortedBy { it.name }

    private fun shipped(): ByteArray? = try {
        context.assets.open("bundle/bundle.json").use { it.readBytes() }
    } catch (missing: FileNotFoundException) {
        null
    }

    private fun isShipped(folder: File, shipped: ByteArray?): Boolean {
        val file = File(folder, "bundle.json")
        return shipped != null && file.length() == shipped.size.toLong() && file.readBytes().contentEquals(shipped)
    }

    private fun freeMemory(): Long {
        val memory = ActivityManager.MemoryInfo()
        context.getSystemService(ActivityManager::class.java)!!.getMemoryInfo(memory)
        return memory.availMem
    }

    private companion object {
        const val FOLDER = "folder"
        const val VARIANT = "variant"
    }
}
