package inversespec.edge.client

import inversespec.edge.*
import java.io.FilterInputStream
import java.io.IOException
import java.io.InputStream
import java.net.HttpURLConnection
import java.net.SocketTimeoutException
import java.net.URI
import java.util.Timer
import java.util.concurrent.CancellationException
import kotlin.concurrent.schedule
import kotlin.concurrent.thread
import kotlin.random.Random

/**
 * Requests parts of remote files, again where that may help. HTTPS, or this very device; redirects are followed under
 * the same rule, without any key.
 *
 * Responsible for statuses and time. Not responsible for files.
 *
 * @param patienceMs the head of a response has to be there in so long, and of its body [BYTES_PER_SECOND] in each such
 *   time: a server that sends a byte now and then must not keep a download alive.
 * @param localCleartext as [ServiceClient.localCleartext].
 */
internal class RangeRequest(
    private val cancel: CancelSignal,
    private val patienceMs: Long = 60_000,
    private val localCleartext: Boolean = false,
    private val pause: (Long) -> Unit = Thread::sleep,
) {
    private var failures = 0

    @Volatile
    private var late = false

    @Volatile
    private var current: HttpURLConnection? = null

    /**
     * Requests the bytes from [start] on, at most [size] of them, and passes them to [read]; with whole = true it is
     * the whole file from its first byte, as the server serves no ranges.
     *
     * A failure is tried again by the caller, who knows what was kept; after [ATTEMPTS] failures in a row, and where
     * the server is too slow, throws CloudUnavailableException. Throws CloudRefusedException for any other status.
     */
    fun get(uri: URI, start: Long, size: Long, read: (whole: Boolean, stream: InputStream) -> Unit) {
        if (cancel.isCancelled) throw CancellationException("cancelled")
        var wait = 0L
        val failure = try {
            cancel.during({ thread(isDaemon = true) { current?.disconnect() } }) {
                val connection = open(uri, start, size)
                when (val status = connection.responseCode) {
                    200 -> connection.inputStream.use { read(true, Paced(it)) }
                    206 -> {
                        if (offset(connection) != start) {
                            throw CloudRefusedException("$uri: expected bytes from $start on, found others")
                        }
                        connection.inputStream.use { read(false, Paced(it)) }
                    }
                    in TEMPORARY -> {
                        wait = (Response(connection) { cancel.isCancelled }.retryAfter() ?: 0).coerceAtMost(MAX_WAIT)
                        throw BadResponseException("status $status")
                    }
                    else -> throw CloudRefusedException("$uri: expected the file, found status $status")
                }
            }
            failures = 0
            return
        } catch (error: IOException) {
            if (cancel.isCancelled) throw CancellationException("cancelled")
            if (late) {
                throw CloudUnavailableException(
                    "$uri: expected ${BYTES_PER_SECOND * patienceMs / 1000} bytes in ${patienceMs / 1000.0} s, found " +
                        "less. What has arrived is kept: fetch it again later.",
                )
            }
            Response.failure(error)
        } finally {
            current?.disconnect()
        }
        if (++failures >= ATTEMPTS) throw CloudUnavailableException("$uri: $failure ($failures attempts)")
        pause(maxOf(wait, (BACKOFF_MS * (1 shl failures) * Random.nextDouble(0.5, 1.0)).toLong()))
    }

    /** To be called where bytes have been kept although the request broke afterwards. */
    fun progressed() {
        failures = 0
    }

    private fun open(uri: URI, start: Long, size: Long): HttpURLConnection {
        var at = uri
        repeat(MAX_REDIRECTS) {
            if (!ServiceClient.isAllowed(at, localCleartext)) {
                throw CloudRefusedException("$uri: expected https, found $at. Plain http is for this device only.")
            }
            val connection = at.toURL().openConnection() as HttpURLConnection
            current = connection
            connection.connectTimeout = CONNECT_MS
            connection.readTimeout = READ_MS
            connection.instanceFollowRedirects = false
            connection.useCaches = false
            connection.setRequestProperty("Accept-Encoding", "identity")
            connection.setRequestProperty("User-Agent", "edge-runtime")
            connection.setRequestProperty("Range", "bytes=$start-${start + size - 1}")
            val status = inTime(connection) { connection.responseCode }
            val location = connection.getHeaderField("Location")
            if (status !in REDIRECTS || location == null) return connection
            connection.disconnect()
            at = try {
                at.resolve(location)
            } catch (error: IllegalArgumentException) {
                throw CloudRefusedException("$uri: expected an address to go to, found ${Response.printable(location)}")
            }
        }
        throw CloudRefusedException("$uri: expected at most $MAX_REDIRECTS redirects, found more")
    }

    /** Runs [body], which waits for the head of a response; ends the connection where that takes too long. */
    private fun <T> inTime(connection: HttpURLConnection, body: () -> T): T {
        val timer = Timer(true)
        timer.schedule(patienceMs) {
            late = true
            connection.disconnect()
        }
        try {
            return body().also { if (late) throw SocketTimeoutException() } // a truncated head looks like a complete one
        } finally {
            timer.cancel()
        }
    }

    /** A body that has to arrive at a least rate. Each read ends by itself after [READ_MS]. */
    private inner class Paced(stream: InputStream) : FilterInputStream(stream) {
        private var since = System.nanoTime()
        private var count = 0L

        override fun read(buffer: ByteArray, offset: Int, length: Int): Int {
            val read = super.read(buffer, offset, length)
            count += maxOf(0, read)
            val milliseconds = (System.nanoTime() - since) / 1_000_000
            if (milliseconds >= patienceMs) {
                if (read >= 0 && count * 1000 < BYTES_PER_SECOND * milliseconds) {
                    late = true
                    throw SocketTimeoutException()
                }
                since = System.nanoTime()
                count = 0
            }
            return read
        }
    }

    private fun offset(connection: HttpURLConnection): Long? =
        CONTENT_RANGE.find(connection.getHeaderField("Content-Range").orEmpty())?.groupValues?.get(1)?.toLongOrNull()

    private companion object {
        const val ATTEMPTS = 5
        const val BACKOFF_MS = 250
        const val MAX_WAIT = 60_000L
        const val CONNECT_MS = 10_000
        const val READ_MS = 30_000
        const val MAX_REDIRECTS = 5

        /** Least mean rate of a body: a fifth of what GPRS brings. */
        const val BYTES_PER_SECOND = 1024L
        val REDIRECTS = setOf(301, 302, 303, 307, 308)
        val TEMPORARY = setOf(408, 429, 500, 502, 503, 504, 511)
        val CONTENT_RANGE = Regex("^bytes (\\d+)-")
    }
}
