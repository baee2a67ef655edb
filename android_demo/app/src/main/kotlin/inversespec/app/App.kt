package inversespec.app

import android.app.Application
import android.os.Process
import android.system.Os
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.ThreadFactory

/**
 * The process: what lives longer than a screen.
 *
 * The desks hold all state and do all work; an activity only shows them, so turning the phone neither stops nor
 * repeats anything.
 */
class App : Application() {
    lateinit var models: ModelsDesk private set
    lateinit var fill: FillDesk private set
    lateinit var bench: BenchDesk private set

    override fun onCreate() {
        super.onCreate()
        // Official builds of ONNX Runtime report usage to their maker by default. Nothing leaves this phone unasked.
        Os.setenv("ORT_DISABLE_TELEMETRY", "1", true)
        // One thread for all calls of a model: one model in memory, one answer at a time, in the order asked for.
        val model = thread("model", Process.THREAD_PRIORITY_DEFAULT)
        val files = thread("files", Process.THREAD_PRIORITY_BACKGROUND)
        models = ModelsDesk(this, model, files)
        fill = FillDesk(this, models, model, files)
        bench = BenchDesk(this, models, model)
        models.start()
    }

    private fun thread(name: String, priority: Int): ExecutorService =
        Executors.newSingleThreadExecutor(object : ThreadFactory {
            override fun newThread(work: Runnable) = object : Thread(name) {
                override fun run() {
                    Process.setThreadPriority(priority)
                    work.run()
                }
            }
        })
}
