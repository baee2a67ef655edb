package inversespec.app

import android.content.Context
import inversespec.edge.EdgeException
import java.io.IOException

/** Something the app itself has to tell the user: a string resource with its arguments. */
class Notice(val text: Int, vararg val arguments: Any) : IOException()

/** What went wrong, in words for the person who holds the phone. */
fun Context.explain(error: Throwable): String = when (error) {
    is EdgeException -> error.message.orEmpty()
    is Notice -> getString(error.text, *error.arguments)
    is OutOfMemoryError -> getString(R.string.error_memory)
    is IOException, is SecurityException -> getString(R.string.error_read, error.message ?: error.javaClass.simpleName)
    else -> getString(R.string.error_unexpected, error.toString())
}
