package inversespec.app

import android.app.job.JobInfo
import android.app.job.JobScheduler
import android.content.ComponentName
import android.content.Context
import inversespec.edge.BundleExistsException
import inversespec.edge.Bundles
import inversespec.edge.CancelSignal
import inversespec.edge.CloudUnavailableException
import inversespec.edge.ServiceClient
import inversespec.edge.UsageException
import java.util.concurrent.CancellationException
import java.util.concurrent.Executor

/**
 * Downloads one model at a time, in a job of the system ([DownloadService]).
 *
 * What is wanted is kept in preferences and what has arrived in files, so a download outlives the process. A failure of
 * the network is tried again by the system, with growing pauses; any other one ends the download.
 *
 * @param thread of the downloads alone, one at a time.
 */
class DownloadViewModel(
    private val context: Context,
    private val models: ModelsViewModel,
    private val localCleartext: Boolean = false,
    private val thread: Executor,
) {
    /** The download that was asked for; null where there is none. */
    val state = StateHolder<ModelDownload?>(null)
    private val preferences = context.getSharedPreferences("download", Context.MODE_PRIVATE)
    private val scheduler = context.getSystemService(JobScheduler::class.java)!!

    @Volatile
    private var current: CancelSignal? = null

    /** Goes on with what an earlier process has left. The system keeps its job, but not over a restart of the phone. */
    fun start() {
        val address = preferences.getString(ADDRESS, null) ?: return
        val unmetered = preferences.getBoolean(UNMETERED, false)
        state.update { ModelDownload(address, unmetered) }
        if (scheduler.getPendingJob(JOB) == null) schedule(unmetered)
    }

    /**
     * Asks for a download; it begins once there is a network of the kind that is asked for.
     *
     * @param replace whether another model of the same name is replaced; else the user is asked.
     */
    fun download(address: String, unmetered: Boolean, replace: Boolean = false) {
        if (state.value != null) return
        try {
            ServiceClient(address, localCleartext = localCleartext) // the same addresses are allowed
        } catch (error: UsageException) {
            return models.fail(error)
        }
        preferences.edit().putString(ADDRESS, address).putBoolean(UNMETERED, unmetered)
            .putBoolean(REPLACE, replace).apply()
        models.clearMessage()
        state.update { ModelDownload(address, unmetered) }
        schedule(unmetered)
    }

    private fun schedule(unmetered: Boolean) {
        val network = if (unmetered) JobInfo.NETWORK_TYPE_UNMETERED else JobInfo.NETWORK_TYPE_ANY
        scheduler.schedule(
            JobInfo.Builder(JOB, ComponentName(context, DownloadService::class.java))
                .setRequiredNetworkType(network)
                .setBackoffCriteria(BACKOFF_MS, JobInfo.BACKOFF_POLICY_EXPONENTIAL)
                .build(),
        )
    }

    /** Gives up the download, and deletes what has arrived. */
    fun cancel() {
        val given = state.value ?: return
        forget()
        scheduler.cancel(JOB)
        current?.cancel()
        models.show(context.getString(R.string.message_cancelled))
        discard(given.address) // after the run that is being cancelled
    }

    private fun discard(address: String) = thread.execute { Bundles.discardFetch(address, models.root) }

    private fun forget() {
        preferences.edit().clear().apply()
        state.update { null }
    }

    /**
     * Downloads what is missing.
     *
     * @param onEnd called when it is over, with whether the job has to run again; not where [signal] was cancelled.
     */
    fun run(signal: CancelSignal, onEnd: (again: Boolean) -> Unit) {
        current = signal
        thread.execute {
            val again = attempt(signal)
            if (!signal.isCancelled) onEnd(again)
        }
    }

    /** Ends a run early; returns whether there is more to do. */
    fun pause(signal: CancelSignal): Boolean {
        signal.cancel()
        state.update { it?.copy(running = false) }
        return state.value != null
    }

    private fun attempt(signal: CancelSignal): Boolean {
        val wanted = state.value ?: return false
        // A run that was cancelled no longer owns the state.
        fun update(change: (ModelDownload) -> ModelDownload) =
            state.update { if (signal.isCancelled) it else it?.let(change) }
        update { it.copy(running = true, problem = null) }
        try {
            val replace = preferences.getBoolean(REPLACE, false)
            val folder = Bundles.fetch(
                wanted.address,
                models.root,
                replace = replace,
                localCleartext = localCleartext,
                cancel = signal,
            ) { done, total ->
                update { it.copy(done = done, total = total) }
            }
            if (state.value?.address == wanted.address) forget()
            models.replaced()
            models.show(context.getString(R.string.message_imported, folder.name))
        } catch (stopped: CancellationException) {
            return true
        } catch (failure: CloudUnavailableException) {
            update { it.copy(running = false, problem = failure.message) }
            return true
        } catch (found: BundleExistsException) {
            forget()
            models.ask(
                Replacement(found) { replace ->
                    if (replace) download(wanted.address, wanted.unmetered, replace = true) else discard(wanted.address)
                },
            )
        } catch (error: Exception) {
            if (!signal.isCancelled) {
                forget()
                models.fail(error)
            }
        }
        return false
    }

    companion object {
        /** The job's number in this app. */
        const val JOB = 1
        private const val ADDRESS = "address"
        private const val UNMETERED = "unmetered"
        private const val REPLACE = "replace"
        private const val BACKOFF_MS = 30_000L
    }
}
