package inversespec.app

import android.app.ActivityManager
import android.content.Context
import android.net.Uri
import inversespec.edge.BundleExistsException
import inversespec.edge.BundleInfo
import inversespec.edge.Bundles
import inversespec.edge.CancelSignal
import inversespec.edge.EdgeException
import inversespec.edge.EdgeRuntime
import inversespec.edge.Progress
import inversespec.edge.RuntimeOptions
import java.io.File
import java.io.FileNotFoundException
import java.util.concurrent.Executor

/** Manages the installed bundles and the open model. */
class ModelsViewModel(
    private val context: Context,
    private val modelThread: Executor,
    private val fileThread: Executor,
) {
    val state = StateHolder(ModelsUiState())

    /** The folder of the installed bundles. */
    val root = File(context.filesDir, "bundles")
    private val preferences = context.getSharedPreferences("model", Context.MODE_PRIVATE)
    private var cancel = CancelSignal()
    private var runtime: EdgeRuntime? = null

    /** Installs the bundle among the app's assets, unless it is installed already. */
    fun start() = onModelThread {
        root.mkdirs()
        val shipped = shipped()
        if (shipped != null && folders().none { isShipped(it, shipped) }) {
            Bundles.importFiles(root, replace = true) { path -> // an update of the app brings its own model
                try {
                    context.assets.open("bundle/$path")
                } catch (missing: FileNotFoundException) {
                    null
                }
            }
        }
    }

    /** Updates the list of installed bundles and the free memory. */
    fun refresh() = onModelThread {}

    /**
     * The selected model, opened if it is not open yet. Model thread only.
     *
     * Hashes are not verified again: every bundle in the app's own storage was verified when it was installed.
     */
    fun open(): EdgeRuntime {
        val installed = state.value.installed
        val selected = installed.firstOrNull { it.inUse } ?: installed.firstOrNull { it.info != null }
            ?: throw LocalizedException(R.string.error_no_model)
        runtime?.let { if (it.info.dir == selected.folder && it.info.variant == selected.variant) return it }
        close()
        val options = RuntimeOptions(variant = selected.variant, verifyHashes = false)
        return EdgeRuntime.open(selected.folder, options).also { runtime = it }
    }

    private fun close() {
        runtime?.close()
        runtime = null
    }

    fun select(bundle: InstalledBundle, variant: String) = onModelThread {
        preferences.edit().putString(FOLDER, bundle.folder.name).putString(VARIANT, variant).apply()
        close()
    }

    fun delete(bundle: InstalledBundle) = onModelThread {
        if (runtime?.info?.dir == bundle.folder) close()
        bundle.folder.deleteRecursively()
        show(context.getString(R.string.message_deleted, bundle.folder.name))
    }

    fun verify(bundle: InstalledBundle) = job(context.getString(R.string.job_verify, bundle.folder.name)) { cancel, progress ->
        Bundles.verify(bundle.folder, cancel = cancel, onProgress = progress)
        context.getString(R.string.message_verified, bundle.folder.name)
    }

    fun importZip(uri: Uri) = importZip(uri, replace = false)

    private fun importZip(uri: Uri, replace: Boolean): Unit = job(
        context.getString(R.string.job_import),
        { importZip(uri, replace = true) },
    ) { cancel, progress ->
        val (name, size) = documentInfo(context.contentResolver, uri)
        name?.let { retitle(context.getString(R.string.job_import_named, it)) }
        val stream = context.contentResolver.openInputStream(uri) ?: throw FileNotFoundException(uri.toString())
        val folder = stream.use {
            Bundles.importZip(it, root, totalBytes = size, replace = replace, cancel = cancel, onProgress = progress)
        }
        context.getString(R.string.message_imported, folder.name)
    }

    fun cancelJob() = cancel.cancel()

    /**
     * Runs a file operation on the file thread, one at a time, with progress.
     *
     * @param onReplace does it again and replaces an installed bundle, which the user is asked for.
     * @param operation returns the message to show when it is done.
     */
    private fun job(title: String, onReplace: () -> Unit = {}, operation: (CancelSignal, Progress) -> String) {
        if (state.value.job != null) return
        val signal = CancelSignal()
        cancel = signal
        state.update { it.copy(job = FileJob(title), message = null) }
        fileThread.execute {
            try {
                val message = operation(signal) { done, total ->
                    state.update { it.copy(job = it.job?.copy(done = done, total = total)) }
                }
                show(message)
            } catch (found: BundleExistsException) {
                ask(Replacement(found) { replace -> if (replace) onReplace() })
            } catch (error: Exception) {
                if (signal.isCancelled) show(context.getString(R.string.message_cancelled)) else fail(error)
            } catch (error: OutOfMemoryError) {
                fail(error)
            }
            state.update { it.copy(job = null) }
            replaced()
        }
    }

    /** Asks the user whether a bundle may replace an installed one. */
    fun ask(replacement: Replacement) = state.update { it.copy(replacement = replacement) }

    /** The user's answer. */
    fun answer(replacement: Replacement, replace: Boolean) {
        if (state.value.replacement !== replacement) return
        state.update { it.copy(replacement = null) }
        if (!replace) show(context.getString(R.string.message_cancelled))
        replacement.onAnswer(replace)
    }

    /** A bundle was installed: one of the same name that it has replaced must not stay open. */
    fun replaced() = onModelThread { close() }

    private fun retitle(title: String) = state.update { it.copy(job = it.job?.copy(title = title)) }

    /** Shows the outcome of an operation. */
    fun show(message: String) = state.update { it.copy(message = message, failed = false) }

    fun clearMessage() = state.update { it.copy(message = null) }

    fun fail(error: Throwable) {
        val message = context.errorMessage(error)
        state.update { it.copy(message = message, failed = true) }
    }

    private fun onModelThread(task: () -> Unit) = modelThread.execute {
        try {
            task()
        } catch (error: Exception) {
            fail(error)
        }
        val installed = list()
        state.update { it.copy(installed = installed, freeMemory = freeMemory()) }
    }

    private fun list(): List<InstalledBundle> {
        val shipped = shipped()
        val selected = preferences.getString(FOLDER, null)
        val found = folders().map { folder ->
            val info: BundleInfo?
            var problem: String? = null
            info = try {
                Bundles.inspect(folder)
            } catch (error: EdgeException) {
                problem = error.message
                null
            }
            val inUse = folder.name == selected && info != null
            val preferred = if (inUse) preferences.getString(VARIANT, null) else null
            val variant = info?.variants?.firstOrNull { it.name == preferred }?.name ?: info?.variant.orEmpty()
            InstalledBundle(folder, info, problem, isShipped(folder, shipped), inUse, variant)
        }
        if (found.any { it.inUse }) return found
        val first = found.firstOrNull { it.builtIn } ?: found.firstOrNull { it.info != null }
        return found.map { it.copy(inUse = it === first) }
    }

    private fun folders(): List<File> =
        root.listFiles { file -> file.isDirectory && !file.name.startsWith(".") }.orEmpty().sortedBy { it.name }

    /** The manifest among the app's assets; null where this build carries no bundle. */
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
