package inversespec.app

import android.os.Handler
import android.os.Looper
import java.util.concurrent.CopyOnWriteArrayList

/**
 * A value that any thread may change and that screens watch.
 *
 * Watchers are called on the main thread, with the newest value, at most once a frame: a model that writes a
 * thousand tokens a second does not flood the main thread.
 */
class Live<T>(initial: T) {
    private val main = Handler(Looper.getMainLooper())
    private val watchers = CopyOnWriteArrayList<(T) -> Unit>()
    private var current = initial
    private var posted = false

    val value: T @Synchronized get() = current

    fun update(change: (T) -> T) {
        synchronized(this) {
            current = change(current)
            if (posted) return
            posted = true
            main.postDelayed(::tell, FRAME_MS)
        }
    }

    private fun tell() {
        val now = synchronized(this) {
            posted = false
            current
        }
        for (watcher in watchers) watcher(now)
    }

    /** Calls [watcher] at once and after every change, until what is returned is called. Main thread only. */
    fun watch(watcher: (T) -> Unit): () -> Unit {
        watchers += watcher
        watcher(value)
        return { watchers -= watcher }
    }

    private companion object {
        const val FRAME_MS = 16L
    }
}
