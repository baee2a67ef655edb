package inversespec.edge.payload.codecs

import inversespec.edge.*
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import kotlin.math.exp
import kotlin.math.ln

/** The model of integers of `tests/android/predictive_expectations.py`. */
internal class MixPredictor(private val vocabSize: Int, override val promptIds: IntArray) : Predictor {
    override val identity = ByteArray(32) { it.toByte() }

    override fun row(text: List<Int>): DoubleArray {
        var state = -0x340d631b7bdddcdbL
        for (number in promptIds.toList() + -1 + text) state = (state xor (number + 2).toLong()) * 0x100000001B3
        val draws = LongArray(vocabSize + 4) {
            state = state xor (state ushr 12)
            state = state xor (state shl 25)
            state = state xor (state ushr 27)
            state * 0x2545F4914F6CDD1D ushr 11
        }
        val scale = doubleArrayOf(0.05, 1.0, 4.0)[(draws[0] % 3).toInt()]
        val row = DoubleArray(vocabSize + 1) { draws[3 + it].toDouble() / (1L shl 53) * scale * 2 }
        row[(draws[2] % vocabSize).toInt()] += doubleArrayOf(0.0, 4.0, 12.0)[(draws[1] % 3).toInt()]
        val top = row.max()
        val norm = top + ln(row.sumOf { exp(it - top) })
        for (id in row.indices) row[id] -= norm
        return row
    }
}

/** Codec predictive, compared with the Python runtime. */
internal class PredictiveTest {
    private val toy = contract(296)

    private fun anchors(row: Row, contract: Contract) = AnchorSet(
        row["positions"].ints(),
        row["ids"].ints(),
        row.int("canvas"),
        contract,
        (row["length"] as Long?)?.toInt(),
    )

    @Test
    fun `every payload of the model of integers decodes as in Python`() {
        var deltas = 0
        var refused = 0
        val rows = expected["predictive"].rows()
        for (row in rows) {
            val predictor = MixPredictor(toy.vocabSize, row["prompt_ids"].ints().toIntArray())
            val base = row["base"]?.row()?.let { Base(it.text("payload").hexToBytes(), anchors(it, toy)) }
            val shared = Shared(toy, null, null, base, predictor)
            val data = row.text("payload").hexToBytes()
            val found = try {
                Payloads.decode(data, shared)
            } catch (error: PayloadException) {
                assertEquals(row["error"], error.javaClass.simpleName.replace("Exception", "Error"), "$row $error")
                refused++
                continue
            }
            assertEquals(null, row["error"], "$row")
            assertEquals(anchors(row["anchors"].row(), toy), found)
            if (base != null) deltas++
        }
        assertTrue(rows.size >= 300 && deltas > 50 && refused in 20..100) { "$deltas deltas, $refused refused" }
    }

    @Test
    fun `another prompt, another model and any changed byte are noticed`() {
        val row = expected["predictive"].rows().first { it["error"] == null && it["base"] == null }
        val prompt = row["prompt_ids"].ints().toIntArray()
        val data = row.text("payload").hexToBytes()
        fun decode(data: ByteArray, prompt: IntArray) =
            Payloads.decode(data, Shared(toy, null, null, null, MixPredictor(toy.vocabSize, prompt)))
        decode(data, prompt)
        assertThrows(FingerprintException::class.java) { decode(data, prompt + 7) }
        for (at in 1 until data.size) {
            val changed = data.clone().also { it[at] = (it[at].toInt() xor 4).toByte() }
            assertThrows(PayloadException::class.java) { decode(changed, prompt) }
        }
        assertThrows(FingerprintException::class.java) { decode(data.copyOf(data.size - 1), prompt) }
    }

    @Test
    fun `50 payloads of the shipped pair give Python's tokens`() {
        val rows = expected["shipped"].rows()
        EdgeRuntime.open(shippedBundle, RuntimeOptions(threads = 1)).use { runtime ->
            rows.withIndex().toList().parallelStream().forEach { (number, row) -> // side by side
                val data = row.text("payload").hexToBytes()
                assertEquals(Codec.PREDICTIVE, Payloads.peek(data).codec)
                val tokens = ArrayList<Token>()
                val stats = runtime.fill(data, row.text("prompt")) { tokens.add(it) }
                assertEquals(row["ids"].ints(), tokens.map { it.id }, "payload $number")
                assertEquals(row["sources"], tokens.joinToString("") { if (it.source == Source.ANCHOR) "A" else "F" })
                assertEquals(row["text"], tokens.joinToString("") { it.text } + stats.tail)
                assertEquals(row["anchors"].row()["positions"].ints().size, stats.anchors)
                assertTrue(tokens.all { it.logprob <= 0 })
            }
        }
        println("predictive payloads of the shipped pair: ${rows.size} of ${rows.size} exact")
        assertTrue(rows.size >= 50)
    }

    @Test
    fun `a predictive answer may be cut, cancelled, and refused, and the model stays usable`() {
        val row = expected["shipped"].rows().first { it["ids"].ints().size > 12 }
        val data = row.text("payload").hexToBytes()
        val ids = row["ids"].ints()
        EdgeRuntime.open(shippedBundle, RuntimeOptions(threads = 1)).use { runtime ->
            fun fill(cancel: CancelSignal = CancelSignal(), options: FillOptions = FillOptions(), stopAfter: Int = -1) =
                ArrayList<Int>().let { seen ->
                    seen to runtime.fill(data, row.text("prompt"), cancel, options) {
                        seen.add(it.id)
                        if (seen.size == stopAfter) cancel.cancel()
                    }
                }
            assertEquals(ids.take(5), fill(options = FillOptions(maxTokens = 5)).first)
            val (seen, stats) = fill(stopAfter = 4)
            assertEquals(ids.take(4) to Stop.CANCELLED, seen to stats.stop)
            assertThrows(FingerprintException::class.java) { runtime.fill(data, "another prompt") {} }
            // Another variant is another model.
            EdgeRuntime.open(shippedBundle, RuntimeOptions("fp32", threads = 1)).use { other ->
                assertThrows(FingerprintException::class.java) { other.fill(data, row.text("prompt")) {} }
            }
            assertEquals(ids, fill().first)
        }
    }
}
