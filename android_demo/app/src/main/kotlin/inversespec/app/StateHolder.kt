package inversespec.app

import android.os.Handler
import android.os.Looper
import java.util.concurrent.CopyOnWriteArrayList

/**
 * An observable value that any thread may update.
 *
 * Observers are called on the main thread with the latest value, at most once per frame, so a model that emits a
 * thousand tokens per second does not flood the main thread.
 */
class StateHolder<T>(initial: T) {
    private val main = Handler(Looper.getMainLooper())
    private val observers = CopyOnWriteArrayList<(T) -> Unit>()
    private var current = initial
    private var posted = false

    val value: T @Synchronized get() = current

    /** Replaces the value by [change] of it, atomically; observers are notified with the next frame. */
    fun update(change: (T) -> T) {
        synchronized(this) {
            current = change(current)
            if (posted) return
            posted = true
            main.postDelayed(::notifyObservers, FRAME_MS)
        }
    }

    private fun notifyObservers() {
        val latest = synchronized(this) {
            posted = false
            current
        }
        for (observer in observers) observer(latest)
    }

    /**
     * Calls [observer] immediately and after every change. Main thread only.
     *
     * @return a function that removes the observer.
     */
    fun observe(observer: (T) -> Unit): () -> Unit {
        observers += observer
        observer(value)
        return { observers -= observer }
    }

    private companion object {
        const val FRAME_MS = 16L
    }
}
