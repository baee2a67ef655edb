package inversespec.edge

/** Cancels a running call from any thread; the model remains usable. Each instance is for one call. */
class CancelSignal {
    @Volatile
    private var cancelled = false
    private var listener: (() -> Unit)? = null

    /** True once [cancel] has been called. */
    val isCancelled: Boolean get() = cancelled

    /** Ends the call that this was passed to, within a pass where possible. May precede the call, and be repeated. */
    @Synchronized
    fun cancel() {
        cancelled = true
        listener?.invoke()
    }

    /** Runs [body]; calls [onCancel] if this is cancelled meanwhile or is cancelled already. */
    internal fun <T> during(onCancel: () -> Unit, body: () -> T): T {
        setListener(onCancel)
        try {
            return body()
        } finally {
            setListener(null)
        }
    }

    @Synchronized
    private fun setListener(onCancel: (() -> Unit)?) {
        listener = onCancel
        if (cancelled) onCancel?.invoke()
    }
}
