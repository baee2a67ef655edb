package inversespec.edge.engine

import inversespec.edge.CancelSignal
import inversespec.edge.EngineException
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.nio.FloatBuffer
import java.time.Duration
import java.util.Collections
import java.util.concurrent.CountDownLatch
import kotlin.concurrent.thread

/** Records the sizes of its passes and what is closed; forks share both. */
private class CountingEngine(val ran: MutableList<Int> = ArrayList(), val closed: MutableList<Engine> = ArrayList()) :
    Engine(64, 16, Turns()) {
    override val cacheBytes get() = SharedModel.MAX_BYTES / 4

    override fun run(chunk: IntArray, rows: IntArray): Logits {
        if (chunk[0] == 13) throw EngineException("no")
        ran.add(chunk.size)
        return Logits(vocab).apply { buffer = FloatBuffer.allocate(0) }
    }

    override fun copy(tokens: Int) = CountingEngine(ran, closed)

    override fun close() {
        closed.add(this)
    }
}

/** Who has which cache, and whose turn it is. */
internal class SharedModelTest {
    private val engine = CountingEngine()
    private val model = SharedModel({}, engine)

    private fun run(vararg text: Int): Engine = model.lease(text, CancelSignal()) { held ->
        held.rewind(held.commonPrefix(text, text.size - 1))
        held.append(text.drop(held.length).toIntArray(), IntArray(0))
        held
    }

    @Test
    fun `a text goes on with the cache that has most of it`() {
        val first = intArrayOf(1, 2) + IntArray(10) { it }
        val second = intArrayOf(1, 2) + IntArray(10) { 10 - it }
        for (text in listOf(first, second, first + 7, second + 8)) run(*text)
        assertEquals(listOf(12, 10, 1, 1), engine.ran) // the second has the two tokens of the first, which keeps its own
    }

    @Test
    fun `a cache is not used again after an error`() {
        assertThrows(EngineException::class.java) { run(13) }
        assertEquals(listOf<Engine>(engine), engine.closed)
        assertEquals(false, run(1) === engine)
    }

    @Test
    fun `few caches wait, within few bytes`() {
        for (number in 0 until 12) run(*IntArray(10) { number })
        assertEquals(8, engine.closed.size) // of a quarter of the bytes each
    }

    @Test
    fun `turns are taken in order, and one that waits may leave`() {
        val turns = Turns()
        val order = Collections.synchronizedList(ArrayList<Int>())
        val (asked, go) = List(2) { CountDownLatch(1) }
        val first = thread { turns.take({ false }) { asked.countDown().also { go.await() } } }
        asked.await()
        var left = false
        val threads = List(8) { number ->
            thread {
                try {
                    turns.take({ left && number == 3 }) { order.add(number) }
                } catch (gone: PassTerminatedException) {
                    order.add(-number)
                }
            }.also { while (it.state != Thread.State.WAITING) Thread.yield() }
        }
        assertTimeoutPreemptively(Duration.ofSeconds(10)) {
            left = true
            turns.look()
            threads[3].join()
            go.countDown()
            (threads + first).forEach(Thread::join)
        }
        assertEquals(listOf(-3, 0, 1, 2, 4, 5, 6, 7), order)
        turns.close()
        assertThrows(EngineException::class.java) { turns.take({ false }) {} }
    }
}
