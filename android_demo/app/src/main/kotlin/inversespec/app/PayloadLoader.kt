package inversespec.app

import android.content.ContentResolver
import android.net.Uri
import inversespec.edge.Payloads
import java.io.ByteArrayOutputStream
import java.io.FileNotFoundException

/** Reads the bytes of a payload from a document, at most [Payloads.MAX_BYTES]. */
object PayloadLoader {
    /** The content of a document that the user chose or shared. */
    fun readDocument(resolver: ContentResolver, uri: Uri): ByteArray {
        val stream = resolver.openInputStream(uri) ?: throw FileNotFoundException(uri.toString())
        stream.use {
            val content = ByteArrayOutputStream()
            val buffer = ByteArray(1 shl 14)
            while (true) {
                val count = it.read(buffer)
                if (count < 0) return content.toByteArray()
                content.write(buffer, 0, count)
                if (content.size() > Payloads.MAX_BYTES) {
                    throw LocalizedException(R.string.error_too_large, Payloads.MAX_BYTES)
                }
            }
        }
    }
}
