package inversespec.app

import android.content.ContentResolver
import android.net.Uri
import android.provider.OpenableColumns

/** Display name and size in bytes of a document; null and -1 where its provider does not state them. */
data class DocumentInfo(val name: String?, val size: Long)

fun documentInfo(resolver: ContentResolver, uri: Uri): DocumentInfo {
    val columns = arrayOf(OpenableColumns.DISPLAY_NAME, OpenableColumns.SIZE)
    return resolver.query(uri, columns, null, null, null)?.use { row ->
        if (!row.moveToFirst()) return@use null
        val name = row.getColumnIndex(columns[0])
        val size = row.getColumnIndex(columns[1])
        DocumentInfo(
            if (name < 0) null else row.getString(name),
            if (size < 0 || row.isNull(size)) -1L else row.getLong(size),
        )
    } ?: DocumentInfo(null, -1L)
}
