package inversespec.edge.engine

import inversespec.edge.EngineException
import java.util.concurrent.locks.ReentrantLock
import kotlin.concurrent.withLock

/** A number of places for passes, taken in the order in which they are asked for; nobody passes ahead. */
internal class Turns(private val places: Int = 1) {
    private val lock = ReentrantLock()
    private val changed = lock.newCondition()
    private val waiting = ArrayDeque<Any>()
    private var running = 0
    private var closed = false

    /**
     * Runs [pass] in its turn. Throws [PassTerminatedException] where the caller has [left] while it waited,
     * [EngineException] where the model is closed.
     */
    fun <T> take(left: () -> Boolean, pass: () -> T): T {
        enter(left)
        try {
            return pass()
        } finally {
            leave()
        }
    }

    private fun enter(left: () -> Boolean) = lock.withLock {
        val caller = Any()
        waiting.addLast(caller)
        try {
            while (closed || running == places || waiting.first() !== caller) {
                if (left()) throw PassTerminatedException()
                if (closed) throw EngineException(CLOSED)
                changed.awaitUninterruptibly()
            }
            running++
        } finally {
            waiting.remove(caller)
            changed.signalAll()
        }
    }

    private fun leave() = lock.withLock {
        running--
        changed.signalAll()
    }

    /** Has everybody who waits look whether they have left. */
    fun look() = lock.withLock { changed.signalAll() }

    /** Gives no more turns, and returns once no pass runs. */
    fun close() = lock.withLock {
        closed = true
        changed.signalAll()
        while (running > 0) changed.awaitUninterruptibly()
    }

    companion object {
        const val CLOSED = "expected an open model, found one that was closed. Open it again."
    }
}
