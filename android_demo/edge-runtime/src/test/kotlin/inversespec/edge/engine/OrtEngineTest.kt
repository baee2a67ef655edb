package inversespec.edge.engine

import inversespec.edge.EngineException
import inversespec.edge.bundle.Bundle
import inversespec.edge.bundle.ModelShape
import inversespec.edge.shippedBundle
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File
import kotlin.math.abs

/** The shipped model on ONNX Runtime: cache growth, rewinding, termination, errors. */
internal class OrtEngineTest {
    private val bundle = Bundle.open(shippedBundle)
    private val context = bundle.manifest.context

    private fun <T> engine(body: (OrtEngine) -> T): T =
        OrtGraph(bundle.graph("fp32"), bundle.manifest.model, 1).use { OrtEngine(it, context).use(body) }

    private fun ids(size: Int, seed: Int = 1): IntArray {
        val random = java.util.Random(seed.toLong())
        return IntArray(size) { random.nextInt(bundle.manifest.contract.vocabSize) }
    }

    private fun Engine.row(chunk: IntArray): FloatArray {
        val logits = append(chunk, intArrayOf(chunk.size - 1))
        return FloatArray(vocab) { logits.buffer.get(it) }
    }

    private fun assertClose(expected: FloatArray, found: FloatArray) {
        assertTrue(expected.indices.all { abs(expected[it] - found[it]) < 1e-3 })
    }

    @Test
    fun `rewinding gives what a fresh engine gives`() = engine { engine ->
        val first = ids(30)
        val other = ids(20, 2)
        val expected = engine { fresh -> fresh.row(first.copyOf(10) + other) }
        engine.row(first)
        engine.rewind(10)
        assertClose(expected, engine.row(other))
        assertEquals(30, engine.length)
        engine.rewind(0)
        assertClose(expected, engine.row(first.copyOf(10) + other))
    }

    @Test
    fun `the cache grows without forgetting`() = engine { engine ->
        val all = ids(minOf(200, context - 1))
        val expected = engine { fresh -> fresh.row(all) }
        var at = 0
        while (at < all.size - 1) {
            val size = minOf(17, all.size - 1 - at)
            engine.append(all.copyOfRange(at, at + size), IntArray(0))
            at += size
        }
        assertClose(expected, engine.row(all.copyOfRange(at, all.size)))
    }

    @Test
    fun `logits are those of the requested rows`() = engine { engine ->
        val chunk = ids(12)
        val logits = engine.append(chunk, intArrayOf(3, 7, 11))
        val rows = List(3) { row -> FloatArray(engine.vocab) { logits.buffer.get(row * engine.vocab + it) } }
        engine.rewind(0)
        for ((row, place) in listOf(3, 7, 11).withIndex()) {
            engine.rewind(0)
            assertClose(engine.row(chunk.copyOf(place + 1)), rows[row])
        }
        // More rows than before: the buffer grows.
        engine.rewind(0)
        val many = engine.append(chunk, IntArray(12) { it })
        assertClose(rows[2], FloatArray(engine.vocab) { many.buffer.get(11 * engine.vocab + it) })
    }

    @Test
    fun `the buffer is reused and the context is the limit`() = engine { engine ->
        engine.append(ids(context), IntArray(0))
        assertEquals(context, engine.length)
        assertThrows(inversespec.edge.ContextException::class.java) { engine.append(ids(1), IntArray(0)) }
        engine.rewind(context - 1)
        val last = ids(1, 3)
        val first = engine.row(last)
        engine.rewind(context - 1)
        assertArrayEquals(first, engine.row(last))
    }

    @Test
    fun `a terminated pass leaves the engine as it was`() = engine { engine ->
        val chunk = ids(20)
        val expected = engine.row(chunk)
        engine.rewind(10)
        engine.terminate(true)
        assertThrows(PassTerminatedException::class.java) { engine.append(chunk.copyOfRange(10, 20), intArrayOf(9)) }
        assertEquals(10, engine.length)
        engine.terminate(false)
        assertClose(expected, engine.row(chunk.copyOfRange(10, 20)))
    }

    @Test
    fun `invalid graphs and arguments are refused with a clear error`(@TempDir temp: File) {
        val text = File(temp, "model.onnx").apply { writeText("no graph") }
        for (graph in listOf(text, File(temp, "absent.onnx"))) {
            val error = assertThrows(EngineException::class.java) { OrtGraph(graph, bundle.manifest.model, 1) }
            assertTrue("expected a graph ONNX Runtime can load" in error.message!!)
        }
        val model = bundle.manifest.model
        val wrong = ModelShape(model.id, model.layers + 1, model.kvHeads, model.headDim, model.vocabSize)
        val error = assertThrows(EngineException::class.java) { OrtGraph(bundle.graph("fp32"), wrong, 1) }
        assertTrue("${model.layers}.key" in error.message!!)
        engine { engine ->
            assertThrows(EngineException::class.java) { engine.append(intArrayOf(engine.vocab), IntArray(0)) }
            assertThrows(EngineException::class.java) { engine.append(intArrayOf(1), intArrayOf(1)) }
            assertThrows(EngineException::class.java) { engine.append(IntArray(0), IntArray(0)) }
            engine.close()
            assertThrows(EngineException::class.java) { engine.append(intArrayOf(1), IntArray(0)) }
        }
    }
}
