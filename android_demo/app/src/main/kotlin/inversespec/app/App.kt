package inversespec.app

import android.app.Application
import android.content.pm.ApplicationInfo
import android.os.Process
import android.system.Os
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.ThreadFactory

/**
 * The application: owner of the view models, which live as long as the process.
 *
 * All state and work is in the view models; an activity only displays them, so rotating the phone neither stops
 * nor repeats anything.
 */
class App : Application() {
    /** Plain http to the developer's machine: in debug builds alone, whose network security configuration permits it. */
    val localCleartext get() = applicationInfo.flags and ApplicationInfo.FLAG_DEBUGGABLE != 0
    lateinit var models: ModelsViewModel private set
    lateinit var fill: FillViewModel private set
    lateinit var chat: ChatViewModel private set
    lateinit var bench: BenchViewModel private set
    lateinit var downloads: DownloadViewModel private set

    override fun onCreate() {
        super.onCreate()
        // Official builds of ONNX Runtime report usage to their publisher by default. This app opts out.
        Os.setenv("ORT_DISABLE_TELEMETRY", "1", true)
        // A single thread for all model calls: one model in memory, one answer at a time, in order of request.
        val modelThread = executor("model", Process.THREAD_PRIORITY_DEFAULT)
        val fileThread = executor("files", Process.THREAD_PRIORITY_BACKGROUND)
        models = ModelsViewModel(this, modelThread, fileThread)
        fill = FillViewModel(this, models, modelThread, fileThread)
        chat = ChatViewModel(this, models, modelThread, localCleartext)
        bench = BenchViewModel(this, models, modelThread)
        downloads = DownloadViewModel(this, models, localCleartext, executor("download", Process.THREAD_PRIORITY_BACKGROUND))
        models.start()
        chat.start()
        downloads.start()
    }

    private fun executor(name: String, priority: Int): ExecutorService =
        Executors.newSingleThreadExecutor(object : ThreadFactory {
            override fun newThread(task: Runnable) = object : Thread(name) {
                override fun run() {
                    Process.setThreadPriority(priority)
                    task.run()
                }
            }
        })
}
