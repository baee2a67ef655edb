package inversespec.app

import android.content.Context
import android.text.format.Formatter
import android.view.LayoutInflater
import android.view.View
import android.view.ViewGroup

/** One of the app's four screens: a view that displays a view model's state while it is started. */
abstract class Screen(parent: ViewGroup, layout: Int) {
    val view: View = LayoutInflater.from(parent.context).inflate(layout, parent, false)
    protected val context: Context get() = view.context
    private var stopObserving: () -> Unit = {}

    /** Observes the view model; returns a function that ends this. */
    protected abstract fun observe(): () -> Unit

    fun start() {
        stopObserving = observe()
    }

    fun stop() {
        stopObserving()
        stopObserving = {}
    }

    protected fun <V : View> find(id: Int): V = view.requireView(id)

    protected fun bytes(count: Long): String = Formatter.formatShortFileSize(context, count)
}

/** The view of an id that the layout contains. */
fun <V : View> View.requireView(id: Int): V = findViewById<V>(id)!!

/** VISIBLE for true, GONE for false. */
var View.isVisible: Boolean
    get() = visibility == View.VISIBLE
    set(value) {
        visibility = if (value) View.VISIBLE else View.GONE
    }
