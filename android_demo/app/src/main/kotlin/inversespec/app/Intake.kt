package inversespec.app

import android.content.ContentResolver
import android.content.res.AssetManager
import android.net.Uri
import android.provider.OpenableColumns
import android.security.NetworkSecurityPolicy
import inversespec.edge.Payloads
import org.json.JSONArray
import java.io.ByteArrayOutputStream
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.MalformedURLException
import java.net.SocketTimeoutException
import java.net.URL
import java.util.concurrent.TimeUnit

/** Bytes that may be a payload, from wherever they come; never more than a payload may have. */
object Intake {
    private const val WAIT_SECONDS = 10
    private const val WHOLE_SECONDS = 30

    /** A document that the user chose or shared. */
    fun document(resolver: ContentResolver, uri: Uri): ByteArray {
        val stream = resolver.openInputStream(uri) ?: throw FileNotFoundException(uri.toString())
        return stream.use { capped(it) }
    }

    /** What the user knows a document by, and its size, or -1 where that is not known. */
    fun describe(resolver: ContentResolver, uri: Uri): Pair<String?, Long> {
        val columns = arrayOf(OpenableColumns.DISPLAY_NAME, OpenableColumns.SIZE)
        return resolver.query(uri, columns, null, null, null)?.use { row ->
            if (!row.moveToFirst()) return@use null
            val name = row.getColumnIndex(columns[0])
            val size = row.getColumnIndex(columns[1])
            Pair(
                if (name < 0) null else row.getString(name),
                if (size < 0 || row.isNull(size)) -1L else row.getLong(size),
            )
        } ?: Pair(null, -1L)
    }

    /** Fetches a payload; gives up after [WAIT_SECONDS] of silence and after [WHOLE_SECONDS] in all. */
    fun download(address: String): ByteArray {
        val url = parse(address)
        if (url.protocol == "http" && !NetworkSecurityPolicy.getInstance().isCleartextTrafficPermitted(url.host)) {
            throw Notice(R.string.error_cleartext)
        }
        val connection = url.openConnection() as HttpURLConnection
        connection.connectTimeout = WAIT_SECONDS * 1000
        connection.readTimeout = WAIT_SECONDS * 1000
        connection.useCaches = false
        connection.setRequestProperty("Accept", "application/octet-stream")
        connection.setRequestProperty("Accept-Encoding", "identity")
        try {
            if (connection.responseCode != HttpURLConnection.HTTP_OK) {
                throw Notice(R.string.error_http, connection.responseCode)
            }
            val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WHOLE_SECONDS.toLong())
            return connection.inputStream.use { capped(it, deadline) }
        } catch (notice: Notice) {
            throw notice
        } catch (silence: SocketTimeoutException) {
            throw Notice(R.string.error_slow, WAIT_SECONDS)
        } catch (error: IOException) {
            throw Notice(R.string.error_network, error.message ?: error.javaClass.simpleName)
        } finally {
            connection.disconnect()
        }
    }

    private fun parse(address: String): URL {
        val url = try {
            URL(address.trim())
        } catch (error: MalformedURLException) {
            throw Notice(R.string.error_url, address.trim())
        }
        if (url.protocol !in setOf("https", "http") || url.host.isNullOrEmpty()) {
            throw Notice(R.string.error_url, address.trim())
        }
        return url
    }

    private fun capped(stream: InputStream, deadline: Long = Long.MAX_VALUE): ByteArray {
        val all = ByteArrayOutputStream()
        val buffer = ByteArray(1 shl 14)
        while (true) {
            val count = stream.read(buffer)
            if (count < 0) return all.toByteArray()
            all.write(buffer, 0, count)
            if (all.size() > Payloads.MAX_BYTES) throw Notice(R.string.error_too_large, Payloads.MAX_BYTES)
            if (System.nanoTime() > deadline) throw Notice(R.string.error_slow, WHOLE_SECONDS)
        }
    }
}

/** A payload that rides in the app: the prompt it was made for, and its file among the assets. */
data class Sample(val title: String, val prompt: String, val asset: String)

/** The samples that this build carries; none where it was built without. */
fun AssetManager.samples(): List<Sample> {
    val index = try {
        open("samples/index.json").use { it.readBytes().toString(Charsets.UTF_8) }
    } catch (missing: FileNotFoundException) {
        return emptyList()
    }
    val entries = JSONArray(index)
    return List(entries.length()) { at ->
        val entry = entries.getJSONObject(at)
        Sample(entry.getString("title"), entry.getString("prompt"), "samples/" + entry.getString("file"))
    }
}
