package inversespec.edge.client

import inversespec.edge.*
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.thread
import kotlin.concurrent.withLock

/**
 * Payloads of one request, received by a thread of its own. One reader takes them; it never waits beyond the time of
 * the request, whatever the network does.
 *
 * @property sent bytes of the request's body.
 * @param receive runs on the feed's thread; it gives each payload to [put].
 */
internal class PayloadFeed(
    private val url: String,
    private val endNanos: Long,
    private val leaving: Leaving,
    val sent: Int,
    receive: (PayloadFeed) -> Unit,
) : AutoCloseable {
    private val lock = ReentrantLock()
    private val changed = lock.newCondition()
    private val waiting = ArrayDeque<ReceivedPayload>()
    private var closed = false
    private var error: Throwable? = null

    init {
        thread(isDaemon = true, name = "anchor-service") {
            val failure = try {
                receive(this)
                null
            } catch (error: EdgeException) {
                error
            } catch (error: RuntimeException) {
                error
            }
            end(failure)
        }
    }

    /** True where [next] would return at once with a payload or an error. */
    val isReady: Boolean get() = lock.withLock { waiting.isNotEmpty() || (closed && error != null) }

    fun put(payload: ReceivedPayload) = lock.withLock {
        waiting.addLast(payload)
        changed.signalAll()
    }

    /**
     * The next payload in order of arrival; null after the last one, and where [cancel] was cancelled.
     *
     * @throws CloudUnavailableException, CloudRefusedException after the last payload, where the request has failed.
     */
    fun next(cancel: CancelSignal): ReceivedPayload? =
        cancel.during({ lock.withLock { changed.signalAll() } }) { lock.withLock { take(cancel) } }

    private fun take(cancel: CancelSignal): ReceivedPayload? {
        while (!cancel.isCancelled) {
            waiting.removeFirstOrNull()?.let { return it }
            if (closed) {
                error?.let { throw it }
                return null
            }
            val left = endNanos + GRACE_NANOS - System.nanoTime()
            if (left <= 0) throw CloudUnavailableException("$url: it did not answer in time")
            changed.await(left, TimeUnit.NANOSECONDS)
        }
        return null
    }

    /** Leaves the request: nothing more is taken, and its thread ends with its next read. */
    override fun close() {
        leaving.leave()
        end(null)
    }

    private fun end(failure: Throwable?) = lock.withLock {
        if (closed) return@withLock
        closed = true
        error = failure
        changed.signalAll()
    }

    private companion object {
        /** For the thread to report by itself. */
        const val GRACE_NANOS = 200_000_000L
    }
}
