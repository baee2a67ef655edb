package inversespec.app

import android.content.Context
import inversespec.edge.EdgeException
import java.io.IOException

/** An error of the app itself: a string resource with its format arguments. */
class LocalizedException(val resource: Int, vararg val arguments: Any) : IOException()

/** The message for an error, in words for the user. */
fun Context.errorMessage(error: Throwable): String = when (error) {
    is EdgeException -> error.message.orEmpty()
    is LocalizedException -> getString(error.resource, *error.arguments)
    is OutOfMemoryError -> getString(R.string.error_memory)
    is IOException, is SecurityException -> getString(R.string.error_read, error.message ?: error.javaClass.simpleName)
    else -> getString(R.string.error_unexpected, error.toString())
}
