package inversespec.app

import android.content.ContentResolver
import android.net.Uri
import android.provider.DocumentsContract
import android.provider.DocumentsContract.Document
import java.io.InputStream

/** Read access to the files of a folder that the user chose, by relative path. */
class DocumentTree(private val resolver: ContentResolver, private val tree: Uri) {
    private val children = HashMap<String, Map<String, String>>()

    /** Opens a file such as `int8/model.onnx`; null where it does not exist. */
    fun open(path: String): InputStream? {
        var id = DocumentsContract.getTreeDocumentId(tree)
        for (name in path.split('/')) id = list(id)[name] ?: return null
        return resolver.openInputStream(DocumentsContract.buildDocumentUriUsingTree(tree, id))
    }

    /** Document ids by display name of the children of one folder. */
    private fun list(folder: String): Map<String, String> = children.getOrPut(folder) {
        val found = HashMap<String, String>()
        val columns = arrayOf(Document.COLUMN_DISPLAY_NAME, Document.COLUMN_DOCUMENT_ID)
        val uri = DocumentsContract.buildChildDocumentsUriUsingTree(tree, folder)
        resolver.query(uri, columns, null, null, null)?.use { rows ->
            while (rows.moveToNext()) found[rows.getString(0)] = rows.getString(1)
        }
        found
    }
}
