package inversespec.app

import android.content.ContentResolver
import android.net.Uri
import android.security.NetworkSecurityPolicy
import inversespec.edge.Payloads
import java.io.ByteArrayOutputStream
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.MalformedURLException
import java.net.SocketTimeoutException
import java.net.URL
import java.util.concurrent.TimeUnit

/** Reads the bytes of a payload from a document or an address, at most [Payloads.MAX_BYTES]. */
object PayloadLoader {
    private const val TIMEOUT_SECONDS = 10
    private const val TOTAL_TIMEOUT_SECONDS = 30

    /** The content of a document that the user chose or shared. */
    fun readDocument(resolver: ContentResolver, uri: Uri): ByteArray {
        val stream = resolver.openInputStream(uri) ?: throw FileNotFoundException(uri.toString())
        return stream.use { readBounded(it) }
    }

    /** Fetches a payload; fails after [TIMEOUT_SECONDS] without data and after [TOTAL_TIMEOUT_SECONDS] in all. */
    fun download(address: String): ByteArray {
        val url = parse(address)
        if (url.protocol == "http" && !NetworkSecurityPolicy.getInstance().isCleartextTrafficPermitted(url.host)) {
            throw LocalizedException(R.string.error_cleartext)
        }
        val connection = url.openConnection() as HttpURLConnection
        connection.connectTimeout = TIMEOUT_SECONDS * 1000
        connection.readTimeout = TIMEOUT_SECONDS * 1000
        connection.useCaches = false
        connection.setRequestProperty("Accept", "application/octet-stream")
        connection.setRequestProperty("Accept-Encoding", "identity")
        try {
            if (connection.responseCode != HttpURLConnection.HTTP_OK) {
                throw LocalizedException(R.string.error_http, connection.responseCode)
            }
            val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TOTAL_TIMEOUT_SECONDS.toLong())
            return connection.inputStream.use { readBounded(it, deadline) }
        } catch (error: LocalizedException) {
            throw error
        } catch (timeout: SocketTimeoutException) {
            throw LocalizedException(R.string.error_slow, TIMEOUT_SECONDS)
        } catch (error: IOException) {
            throw LocalizedException(R.string.error_network, error.message ?: error.javaClass.simpleName)
        } finally {
            connection.disconnect()
        }
    }

    private fun parse(address: String): URL {
        val url = try {
            URL(address.trim())
        } catch (error: MalformedURLException) {
            throw LocalizedException(R.string.error_url, address.trim())
        }
        if (url.protocol !in setOf("https", "http") || url.host.isNullOrEmpty()) {
            throw LocalizedException(R.string.error_url, address.trim())
        }
        return url
    }

    private fun readBounded(stream: InputStream, deadline: Long = Long.MAX_VALUE): ByteArray {
        val content = ByteArrayOutputStream()
        val buffer = ByteArray(1 shl 14)
        while (true) {
            val count = stream.read(buffer)
            if (count < 0) return content.toByteArray()
            content.write(buffer, 0, count)
            if (content.size() > Payloads.MAX_BYTES) {
                throw LocalizedException(R.string.error_too_large, Payloads.MAX_BYTES)
            }
            if (System.nanoTime() > deadline) throw LocalizedException(R.string.error_slow, TOTAL_TIMEOUT_SECONDS)
        }
    }
}
