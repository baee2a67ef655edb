package inversespec.edge

import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.io.File
import java.time.Duration
import java.util.Random
import java.util.concurrent.Callable
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors
import kotlin.concurrent.thread

/** One runtime and many callers: each gets the text of an answer alone. */
internal class SharingTest {
    private val rows = expected["fills"].rows().filter { it["variant"] == "fp32" }
    private val plain = rows.first { it["payload"] == null }
    private val text = plain.text("prompt")
    private val wanted = plain["ids"].ints()
    private val short = FillOptions(maxTokens = plain.int("max_tokens"))

    private fun opened(engines: Int = 1) =
        EdgeRuntime.open(File(plain.text("bundle")), RuntimeOptions("fp32", threads = 1, engines = engines))

    private fun EdgeRuntime.ids(row: Row): List<Int> {
        val ids = ArrayList<Int>()
        val options = FillOptions((row["max_tokens"] as Long?)?.toInt())
        fill((row["payload"] as String?)?.hexToBytes(), row["prompt"] as String?, options = options) { ids.add(it.id) }
        return ids
    }

    /** Fills, sessions and answers that are left, mixed in four threads; -Dfills=100000 for a long run. */
    private fun mixed(engines: Int, count: Int) = opened(engines).use { runtime ->
        val pool = Executors.newFixedThreadPool(4)
        val started = System.nanoTime()
        try {
            val work = List(4) { seed ->
                Callable {
                    val random = Random(seed.toLong())
                    repeat(count / 4) {
                        val left = rows[random.nextInt(rows.size)]
                        when (random.nextInt(8)) {
                            0 -> assertThrows(IllegalStateException::class.java) { runtime.generate(text) { error("left") } }
                            1 -> CancelSignal().let { cancel -> runtime.generate("$text $it", cancel = cancel) { cancel.cancel() } }
                            2 -> assertEquals(wanted, EdgeSession(runtime).ask(text, short) {}.tokens.map { it.id })
                        }
                        assertEquals(left["ids"].ints(), runtime.ids(left))
                    }
                }
            }
            pool.invokeAll(work).forEach { it.get() }
        } finally {
            pool.shutdown()
        }
        println("$engines at once: $count fills in 4 threads in ${(System.nanoTime() - started) / 1_000_000} ms")
    }

    @Test
    fun `threads get the texts of answers alone`() {
        val count = System.getProperty("fills")?.toInt() ?: 400
        for (engines in listOf(1, 2)) mixed(engines, count / 2)
    }

    @Test
    fun `an answer may be asked for within another`() = opened().use { runtime ->
        val inner = ArrayList<List<Int>>()
        val ids = ArrayList<Int>()
        runtime.fill(null, text, options = short) {
            ids.add(it.id)
            if (ids.size in 2..4) inner.add(runtime.ids(rows[ids.size]))
        }
        assertEquals(wanted, ids)
        assertEquals((2..4).map { rows[it]["ids"].ints() }, inner)
    }

    @Test
    fun `a runtime closes beside an answer whose reader does not return, and refuses from then on`() {
        val runtime = opened()
        val (begun, go) = List(2) { CountDownLatch(1) }
        lateinit var stats: FillStats
        val worker = thread {
            stats = runtime.generate(text) {
                begun.countDown()
                go.await()
            }
        }
        begun.await()
        assertTimeoutPreemptively(Duration.ofSeconds(10)) {
            runtime.close()
            runtime.close()
            assertThrows(EngineException::class.java) { runtime.generate(text) {} }
            assertThrows(EngineException::class.java) { EdgeSession(runtime).ask(text) {} }
            assertThrows(EngineException::class.java) { runtime.bench() }
            go.countDown()
            worker.join()
        }
        assertEquals(Stop.CANCELLED to 1, stats.stop to stats.tokens)
        assertThrows(UsageException::class.java) { opened(engines = 0) }
    }
}
