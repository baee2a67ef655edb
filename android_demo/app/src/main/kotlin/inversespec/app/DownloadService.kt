package inversespec.app

import android.app.job.JobParameters
import android.app.job.JobService
import inversespec.edge.CancelSignal

/**
 * The job in which a model is downloaded. The system runs it while there is a network of the kind that was asked for,
 * for some minutes at a time, and again where the process was killed: each run goes on where the one before stood.
 */
class DownloadService : JobService() {
    private var signal = CancelSignal()

    override fun onStartJob(parameters: JobParameters): Boolean {
        val started = CancelSignal()
        signal = started
        (application as App).downloads.run(started) { again -> jobFinished(parameters, again) }
        return true
    }

    /** The system ends this run; true where there is more to do. */
    override fun onStopJob(parameters: JobParameters): Boolean = (application as App).downloads.pause(signal)
}
