package inversespec.edge.client

import inversespec.edge.CloudUnavailableException
import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import java.io.ByteArrayOutputStream
import java.io.EOFException
import java.io.IOException
import java.io.InputStream
import java.net.ConnectException
import java.net.HttpRetryException
import java.net.HttpURLConnection
import java.net.NoRouteToHostException
import java.net.SocketException
import java.net.SocketTimeoutException
import java.net.UnknownHostException
import java.text.ParseException
import java.text.SimpleDateFormat
import java.util.Locale
import java.util.TimeZone
import javax.net.ssl.SSLException

/** What answered is not the service, or not whole. */
internal class BadResponseException(message: String) : IOException(message)

/**
 * A response from an untrusted server, whose body has not been read: bounded in size, in time and in form.
 *
 * Not responsible for requests or retries ([HttpRequest]).
 *
 * @param late polled with every read: whether the time is up, or the reader has left.
 */
internal class Response(private val connection: HttpURLConnection, private val late: () -> Boolean) {
    val status: Int = try {
        connection.responseCode
    } catch (error: HttpRetryException) {
        error.responseCode() // of a 401 to a request with a body
    }

    private val stream: InputStream? by lazy { if (status < 400) connection.inputStream else connection.errorStream }

    init {
        if (status < 0) throw BadResponseException(ANOTHER_LANGUAGE)
    }

    fun header(name: String): String? = connection.getHeaderField(name)

    /** Throws for another content type: a captive portal, not the service. */
    fun requireType(expected: String) {
        val found = (header("Content-Type") ?: "none").substringBefore(';').trim().lowercase(Locale.ROOT)
        if (found != expected) {
            throw CloudUnavailableException(
                "expected the service's $expected, found ${printable(found)}: $ELSEWHERE",
            )
        }
    }

    /** The whole body. Throws for more than [most] bytes, and for one whose end could not be told from a break. */
    fun readAtMost(most: Int): ByteArray {
        val stated = header("Content-Length")?.toLongOrNull()
        if (stated == null && !header("Transfer-Encoding").equals("chunked", ignoreCase = true)) {
            throw EOFException(INCOMPLETE)
        }
        val out = ByteArrayOutputStream()
        val buffer = ByteArray(BUFFER_BYTES)
        while (true) {
            val count = read(buffer)
            if (count < 0) break
            out.write(buffer, 0, count)
            if (out.size() > most) {
                throw CloudUnavailableException("expected an answer of at most $most bytes, found more")
            }
        }
        if (stated != null && stated != out.size().toLong()) throw EOFException(INCOMPLETE)
        return out.toByteArray()
    }

    /** Reads the next bytes of the body; -1 at its end. */
    fun read(buffer: ByteArray): Int {
        if (late()) throw SocketTimeoutException()
        val count = (stream ?: return -1).read(buffer)
        if (late()) throw SocketTimeoutException()
        return count
    }

    /** Status and reason of the response; printable. */
    val phrase: String get() = "$status ${printable(connection.responseMessage.orEmpty())}".trim()

    /** The error that the body of a response other than 200 states; null where the body is not a service's. */
    fun serviceError(): String? = try {
        // Of a 401 to a request with a body, Java may keep the response's body to itself.
        val asksForKey = status == 401 && stream == null && header("WWW-Authenticate")?.startsWith("Bearer") == true
        if (asksForKey) "expected a key that the service knows" else serviceError(jsonObject(readAtMost(MAX_TEXT_BYTES)))
    } catch (unreadable: IOException) {
        null
    } catch (unreadable: CloudUnavailableException) {
        null
    }

    /** Milliseconds of the header Retry-After, a number of seconds or a date; null without one. */
    fun retryAfter(): Long? {
        val text = header("Retry-After")?.trim() ?: return null
        if (text.isNotEmpty() && text.all { it in '0'..'9' }) return 1000 * text.take(9).toLong()
        val format = SimpleDateFormat("EEE, dd MMM yyyy HH:mm:ss zzz", Locale.US)
        format.timeZone = TimeZone.getTimeZone("GMT")
        return try {
            maxOf(0, format.parse(text)!!.time - System.currentTimeMillis())
        } catch (error: ParseException) {
            null
        }
    }

    companion object {
        /** Maximum size of a body that is text: an error, the contract. */
        const val MAX_TEXT_BYTES = 1 shl 16
        private const val BUFFER_BYTES = 1 shl 14
        private const val MAX_SHOWN = 300
        private const val INCOMPLETE = "it ended the connection before its answer was complete"

        /** Where a captive portal or a proxy speaks in the service's place. */
        const val ELSEWHERE = "something else answers there"
        const val ANOTHER_LANGUAGE = "what answered does not speak its language"

        /** Parses a JSON object; throws IOException for anything else. */
        fun jsonObject(data: ByteArray): Map<*, *> = try {
            Json.parse(data) as? Map<*, *>
        } catch (error: JsonException) {
            null
        } ?: throw BadResponseException(ANOTHER_LANGUAGE)

        /** Text of {"error": {"code", "expected", "found", "remedy"}} or its inner object; null for another form. */
        fun serviceError(data: Map<*, *>): String? {
            val error = (if ("error" in data) data["error"] else data) as? Map<*, *> ?: return null
            if (!error.keys.containsAll(listOf("code", "expected", "found"))) return null
            fun field(name: String) = printable(error[name]?.toString().orEmpty())
            val remedy = field("remedy").let { if (it.isEmpty()) "" else ". $it" }
            return "${field("code")}: expected ${field("expected")}, found ${field("found")}$remedy"
        }

        /** The cause of a failed exchange in a few words. */
        fun failure(error: IOException): String = when (error) {
            is SocketTimeoutException -> "it did not answer in time"
            is SSLException -> "no secure connection: ${error.message}"
            is UnknownHostException -> "it cannot be reached: no such host"
            is ConnectException, is NoRouteToHostException -> "it cannot be reached: ${error.message}"
            is BadResponseException -> error.message.orEmpty()
            is SocketException, is EOFException -> INCOMPLETE
            else -> if (error.message.orEmpty().contains("EOF")) INCOMPLETE else ANOTHER_LANGUAGE
        }

        /** Untrusted text, shortened and without control characters. */
        fun printable(text: String): String = text.replace(Regex("[\\x00-\\x1f\\x7f-\\x9f]+"), " ").take(MAX_SHOWN)
    }
}
