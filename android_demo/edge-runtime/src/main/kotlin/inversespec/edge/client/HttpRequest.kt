package inversespec.edge.client

import inversespec.edge.CloudRefusedException
import inversespec.edge.CloudUnavailableException
import java.io.IOException
import java.net.HttpURLConnection
import java.net.SocketTimeoutException
import java.net.URL
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import kotlin.random.Random

/** Ends waiting and reading from another thread; the thread that reads closes its connection itself. */
internal class Leaving {
    private val left = CountDownLatch(1)

    val isLeft: Boolean get() = left.count == 0L

    fun leave() = left.countDown()

    /** Waits until left, at most so long. */
    fun pause(milliseconds: Long) {
        left.await(milliseconds, TimeUnit.MILLISECONDS)
    }
}

/**
 * One request to an address, sent again where that may help: growing pauses, and the service's own Retry-After.
 *
 * Responsible for attempts and time. Not responsible for the content of a response ([Response]). Runs on the thread
 * that calls it, which may be left alone: see [Leaving].
 *
 * @param endNanos of System.nanoTime(): the time by which the last byte has to be there.
 * @param pause waits between attempts, in milliseconds.
 */
internal class HttpRequest(
    private val url: String,
    private val key: String?,
    private val attempts: Int,
    private val endNanos: Long,
    private val leaving: Leaving,
    private val pause: (Long) -> Unit = leaving::pause,
) {
    /** Sends a request and returns what [read] makes of a response with status 200 and the content type [accept]. */
    fun <T> send(path: String, body: ByteArray?, accept: String, read: (Response) -> T): T {
        var attempt = 1
        while (true) {
            var wait = (BACKOFF_MS * (1 shl (attempt - 1)) * Random.nextDouble(0.5, 1.0)).toLong()
            var connection: HttpURLConnection? = null
            val failure = try {
                connection = connect(path, body, accept)
                val response = Response(connection, ::late)
                if (response.status == 200) {
                    response.requireType(accept)
                    return read(response)
                }
                val error = response.serviceError()
                if (response.status !in RETRIED) {
                    if (error == null) throw CloudUnavailableException(another(response))
                    throw CloudRefusedException("$url: ${response.phrase}: $error")
                }
                // Jitter: clients that were turned away together should not come back together.
                response.retryAfter()?.let { wait = maxOf(wait, (it * Random.nextDouble(1.0, 1.25)).toLong()) }
                if (error == null) another(response) else "${response.phrase}: $error"
            } catch (error: IOException) {
                if (late()) Response.failure(SocketTimeoutException()) else Response.failure(error)
            } catch (error: CloudUnavailableException) {
                throw CloudUnavailableException("$url: ${error.message}")
            } finally {
                connection?.disconnect()
            }
            if (attempt >= attempts || leaving.isLeft || millisecondsLeft() <= wait) {
                val tries = if (attempt == 1) "1 attempt" else "$attempt attempts"
                throw CloudUnavailableException("$url: $failure ($tries)")
            }
            pause(wait)
            attempt++
        }
    }

    private fun connect(path: String, body: ByteArray?, accept: String): HttpURLConnection {
        val left = millisecondsLeft()
        if (left <= 0 || leaving.isLeft) throw SocketTimeoutException()
        val connection = URL(url.trimEnd('/') + path).openConnection() as HttpURLConnection
        connection.connectTimeout = minOf(CONNECT_MS, left).toInt()
        connection.readTimeout = left.toInt()
        // A redirect would carry the key elsewhere.
        connection.instanceFollowRedirects = false
        connection.useCaches = false
        connection.setRequestProperty("Accept", accept)
        connection.setRequestProperty("Accept-Encoding", "identity")
        connection.setRequestProperty("User-Agent", "edge-runtime")
        connection.setRequestProperty("Connection", "close")
        if (key != null) connection.setRequestProperty("Authorization", "Bearer $key")
        try {
            if (body != null) {
                connection.doOutput = true
                connection.requestMethod = "POST"
                connection.setRequestProperty("Content-Type", JSON)
                // With a known length neither Java nor Android sends the body a second time by itself.
                connection.setFixedLengthStreamingMode(body.size)
                connection.outputStream.use { it.write(body) }
            }
        } catch (error: IOException) {
            connection.disconnect()
            throw error
        }
        return connection
    }

    private fun another(response: Response) =
        "expected the service's answer, found ${response.phrase}: ${Response.ELSEWHERE}"

    private fun late() = leaving.isLeft || millisecondsLeft() <= 0

    private fun millisecondsLeft(): Long = (endNanos - System.nanoTime()) / 1_000_000

    companion object {
        const val BINARY = "application/octet-stream"
        const val JSON = "application/json"
        const val EVENTS = "text/event-stream"

        /** Statuses of temporary failures. */
        private val RETRIED = setOf(408, 429, 500, 502, 503, 504)

        /** Before the second attempt; doubled before each further one. */
        private const val BACKOFF_MS = 250
        private const val CONNECT_MS = 5000L
    }
}
