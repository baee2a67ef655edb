package inversespec.edge.decode

import inversespec.edge.*
import inversespec.edge.engine.*
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.nio.FloatBuffer
import kotlin.math.exp
import kotlin.math.ln

/** Predicts (7 * token + index) mod ([vocab] - 3) after a token, unless [next] overrides it. Records its passes. */
private class FakeEngine(context: Int = 200, vocab: Int = 50, private val next: (Int, Int) -> Int? = { _, _ -> null }) :
    Engine(context, vocab, Turns()) {
    val passes = ArrayList<Pair<List<Int>, List<Int>>>()

    fun after(token: Int, index: Int): Int = next(token, index) ?: ((7 * token + index) % (vocab - 3))

    override fun run(chunk: IntArray, rows: IntArray): Logits {
        passes.add(chunk.toList() to rows.toList())
        val logits = Logits(vocab)
        logits.buffer = FloatBuffer.allocate(rows.size * vocab)
        for ((index, row) in rows.withIndex()) {
            val best = after(chunk[row], length + row)
            for (id in 0 until vocab) logits.buffer.put(index * vocab + id, if (id == best) 3f else -id / 100f)
        }
        return logits
    }

    override fun copy(tokens: Int): Engine = error("not forked")

    override fun close() = Unit
}

internal class ForcedDecoderTest {
    private class Out(val id: Int, val position: Int, val source: Source, val logProb: Double)

    private val contract: Contract = contract(47) // of 50: 47 and 49 end an answer

    private fun anchors(pairs: Map<Int, Int>, canvas: Int = 20, length: Int? = null) =
        AnchorSet.of(pairs, canvas, contract, length)

    private fun fill(
        engine: Engine,
        prompt: List<Int>,
        anchors: AnchorSet,
        options: FillOptions = FillOptions(),
        stopAfter: Int = Int.MAX_VALUE,
    ): Pair<List<Out>, DecodeStats> {
        val out = ArrayList<Out>()
        val stopped = { out.size >= stopAfter }
        val costs = ForcedDecoder(
            engine,
            prompt.toIntArray(),
            anchors,
            options,
            stopped,
        ) { id, at, source, logProb -> out.add(Out(id, at, source, logProb)) }.run()
        return out to costs
    }

    /** The reference: one pass per position, as in the paper. */
    private fun stepwise(engine: FakeEngine, prompt: List<Int>, anchors: AnchorSet, size: Int): List<Int> {
        val known = anchors.byPosition
        val text = prompt.toMutableList()
        repeat(size) { text.add(known[it] ?: engine.after(text.last(), text.size - 1)) }
        return text.drop(prompt.size)
    }

    @Test
    fun `runs of known tokens give the result of one pass per position`() {
        val random = java.util.Random(2)
        repeat(60) {
            val size = 1 + random.nextInt(30)
            val places = (0 until size).filter { random.nextInt(3) == 0 }
            val set = anchors(places.associateWith { random.nextInt(47) }, 40, size)
            val prompt = List(1 + random.nextInt(9)) { random.nextInt(47) }
            val bounded = FillOptions(maxChunk = 3, maxRows = 2)
            for (options in listOf(FillOptions(), FillOptions(scoreAnchors = false), bounded)) {
                val (out, costs) = fill(FakeEngine(), prompt, set, options)
                assertEquals(stepwise(FakeEngine(), prompt, set, size), out.map { it.id })
                assertEquals(List(size) { it }, out.map { it.position })
                assertEquals(places.toSet(), out.filter { it.source == Source.ANCHOR }.map { it.position }.toSet())
                assertEquals(Stop.LENGTH, costs.stop)
                assertEquals(options.scoreAnchors, out.none { it.logProb.isNaN() } && options.scoreAnchors)
            }
        }
    }

    @Test
    fun `the number of passes is minimal`() {
        val engine = FakeEngine()
        val (_, costs) = fill(engine, listOf(1, 2, 3), anchors(mapOf(0 to 5, 1 to 6, 4 to 7, 5 to 8), length = 8))
        // Prompt and two anchors; gap token; gap token and the anchors after it; gap token. The last token is not run.
        assertEquals(listOf(5, 1, 3, 1), engine.passes.map { it.first.size })
        assertEquals(listOf(listOf(2, 3, 4), listOf(0), listOf(0, 1, 2), listOf(0)), engine.passes.map { it.second })
        assertEquals(4, costs.passes)
        val unscored = FakeEngine()
        fill(unscored, listOf(1, 2, 3), anchors(mapOf(0 to 5, 1 to 6), length = 2), FillOptions(scoreAnchors = false))
        assertEquals(0, unscored.passes.size)
    }

    @Test
    fun `chunks and rows are bounded`() {
        val engine = FakeEngine()
        val all = anchors((0 until 9).associateWith { 2 }, length = 9)
        fill(engine, List(10) { 1 }, all, FillOptions(maxChunk = 4, maxRows = 3))
        assertTrue(engine.passes.all { it.first.size <= 4 && it.second.size <= 3 })
        assertEquals(9, engine.passes.sumOf { it.second.size })
    }

    @Test
    fun `end tokens are suppressed up to the last anchor and the known length`() {
        val ends = FakeEngine(next = { _, _ -> 49 })
        val (out, costs) = fill(ends, listOf(1), anchors(mapOf(3 to 9)))
        assertEquals(listOf(0, 0, 0, 9), out.map { it.id }) // the lowest id on ties where the end token is suppressed
        assertEquals(Stop.END_TOKEN, costs.stop)
        val (whole, counted) = fill(ends, listOf(1), anchors(mapOf(0 to 9), length = 3))
        assertEquals(3, whole.size)
        assertEquals(Stop.LENGTH, counted.stop)
    }

    @Test
    fun `answers end according to the stop rule`() {
        val many = anchors((0 until 9).associateWith { 1 })
        assertEquals(Stop.LAST_ANCHOR, fill(FakeEngine(), listOf(1), many).second.stop)
        assertEquals(Stop.LIMIT, fill(FakeEngine(), listOf(1), anchors(emptyMap())).second.stop)
        val (out, costs) = fill(FakeEngine(), listOf(1), anchors(mapOf(0 to 1), length = 9), FillOptions(maxTokens = 4))
        assertEquals(4 to Stop.LIMIT, out.size to costs.stop)
        val (short, _) = fill(FakeEngine(context = 12), List(5) { 1 }, anchors(mapOf(0 to 1), canvas = 20))
        assertEquals(7, short.size)
        assertEquals(0, fill(FakeEngine(), listOf(1), anchors(emptyMap(), length = 0)).first.size)
    }

    @Test
    fun `invalid arguments are refused`() {
        val engine = FakeEngine(context = 10)
        assertThrows(UsageException::class.java) { fill(engine, emptyList(), anchors(emptyMap())) }
        assertThrows(ContextException::class.java) { fill(engine, List(10) { 1 }, anchors(emptyMap())) }
        assertThrows(ContextException::class.java) { fill(engine, List(6) { 1 }, anchors(mapOf(7 to 1))) }
        val none = FillOptions(maxTokens = 0)
        assertThrows(UsageException::class.java) { fill(engine, listOf(1), anchors(emptyMap()), none) }
        assertThrows(EngineException::class.java) { fill(engine, listOf(50), anchors(emptyMap())) }
        assertThrows(EngineException::class.java) { engine.rewind(5) }
    }

    @Test
    fun `the cached prefix of the prompt is reused, also after a cancellation`() {
        val engine = FakeEngine()
        val set = anchors(mapOf(4 to 9), length = 10)
        val (stopped, costs) = fill(engine, listOf(1, 2, 3), set, stopAfter = 3)
        assertEquals(3 to Stop.CANCELLED, stopped.size to costs.stop)
        val (again, second) = fill(engine, listOf(1, 2, 3), set)
        assertEquals(fill(FakeEngine(), listOf(1, 2, 3), set).first.map { it.id }, again.map { it.id })
        assertTrue(second.reused >= 2)
        assertEquals(0, fill(engine, listOf(9, 9), set, stopAfter = 0).first.size)
    }

    @Test
    fun `log probabilities of anchors`() {
        val (out, _) = fill(FakeEngine(), listOf(1), anchors(mapOf(0 to 9, 1 to 8), length = 4))
        val best = FakeEngine().after(1, 0)
        val scores = DoubleArray(50) { if (it == best) 3.0 else -it / 100.0 }
        assertEquals(scores[9] - ln(scores.sumOf(::exp)), out[0].logProb, 1e-5)
    }

    @Test
    fun `argmax and log probabilities over several blocks`() {
        val vocab = 5000
        val logits = Logits(vocab)
        logits.buffer = FloatBuffer.allocate(2 * vocab)
        for (id in 0 until vocab) logits.buffer.put(vocab + id, (id * 37 % 101) / 10f - 20)
        val row = FloatArray(vocab) { logits.buffer.get(vocab + it) }
        val top = row.max()
        assertEquals(row.indexOfFirst { it == top }, logits.argmax(1))
        val all = row.withIndex().filter { it.value == top }.map { it.index }
        assertEquals(all[1], logits.argmax(1, intArrayOf(all[0])))
        val sum = row.sumOf { exp(it.toDouble() - top) }
        for (id in listOf(0, 1, 2047, 2048, 4999)) {
            assertEquals(row[id] - top - ln(sum), logits.logProb(1, id), 1e-5)
        }
        assertEquals(0, logits.argmax(0))
        logits.buffer.put(4321, Float.NaN)
        assertThrows(EngineException::class.java) { logits.argmax(0) }
        for (id in 0 until vocab) logits.buffer.put(id, Float.NEGATIVE_INFINITY)
        assertThrows(EngineException::class.java) { logits.argmax(0) }
    }

    @Test
    fun `the fast exponential is accurate`() {
        var x = 0f
        while (x > -90f) {
            val exact = exp(x.toDouble())
            assertEquals(exact, Logits.exp(x).toDouble(), 2e-6 * exact + 1e-37)
            x -= 0.0137f
        }
        assertEquals(1f, Logits.exp(0f), 1e-6f)
        assertEquals(0f, Logits.exp(Float.NEGATIVE_INFINITY))
    }
}
