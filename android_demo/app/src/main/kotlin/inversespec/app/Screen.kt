package inversespec.app

import android.content.Context
import android.text.format.Formatter
import android.view.LayoutInflater
import android.view.View
import android.view.ViewGroup

/** One of the app's three screens: a view that shows a desk while it is started. */
abstract class Screen(parent: ViewGroup, layout: Int) {
    val view: View = LayoutInflater.from(parent.context).inflate(layout, parent, false)
    protected val context: Context get() = view.context
    private var unwatch: () -> Unit = {}

    /** Starts watching; returns how to stop. */
    protected abstract fun watch(): () -> Unit

    fun start() {
        unwatch = watch()
    }

    fun stop() {
        unwatch()
        unwatch = {}
    }

    protected fun <V : View> find(id: Int): V = view.need(id)

    protected fun bytes(count: Long): String = Formatter.formatShortFileSize(context, count)
}

/** A view that the layout has. */
fun <V : View> View.need(id: Int): V = findViewById<V>(id)!!

/** Visible or gone. */
var View.shown: Boolean
    get() = visibility == View.VISIBLE
    set(yes) {
        visibility = if (yes) View.VISIBLE else View.GONE
    }
