package inversespec.edge

/** Cancels a running call from any thread; the model remains usable. Each instance is for one call. */
class CancelSignal {
    @Volatile
    private var cancelled = false
    private val listeners = ArrayList<() -> Unit>()

    /** True once [cancel] has been called. */
    val isCancelled: Boolean get() = cancelled

    /** Ends the call that this was passed to, within a pass where possible. May precede the call, and be repeated. */
    @Synchronized
    fun cancel() {
        cancelled = true
        listeners.forEach { it() }
    }

    /** Runs [body]; calls [onCancel] if this is cancelled meanwhile or is cancelled already. */
    internal fun <T> during(onCancel: () -> Unit, body: () -> T): T {
        add(onCancel)
        try {
            return body()
        } finally {
            remove(onCancel)
        }
    }

    @Synchronized
    private fun add(onCancel: () -> Unit) {
        listeners.add(onCancel)
        if (cancelled) onCancel()
    }

    @Synchronized
    private fun remove(onCancel: () -> Unit) {
        listeners.remove(onCancel)
    }
}
