package inversespec.edge.payload

import inversespec.edge.*
import inversespec.edge.payload.codecs.CompactCodec
import inversespec.edge.payload.codecs.ModelFile
import inversespec.edge.text.Json
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.*
import org.junit.jupiter.api.DynamicTest.dynamicTest
import java.io.File

/** A greedy longest-match tokenizer; among equal pieces the lowest id. */
internal class ToyTokens(private val pieces: List<ByteArray>) : TokenBytes {
    private val ids = pieces.withIndex().reversed().filter { it.value.isNotEmpty() }
        .associate { it.value.toHex() to it.index }
    private val longest = pieces.maxOf { it.size }

    override fun tokenBytes(id: Int): ByteArray = pieces[id]

    override fun encode(text: String): IntArray {
        val data = text.toByteArray()
        val out = ArrayList<Int>()
        var at = 0
        while (at < data.size) {
            val size = (minOf(longest, data.size - at) downTo 1).first { data.copyOfRange(at, at + it).toHex() in ids }
            out.add(ids.getValue(data.copyOfRange(at, at + size).toHex()))
            at += size
        }
        return out.toIntArray()
    }
}

internal class PayloadTest {
    private val document = Json.parse(File(repo, "tests/vectors/payload_vectors.json").readBytes()).row()
    private val vectors = document["vectors"].rows()
    private val contracts = document["contracts"].row().mapValues { (_, each) -> contract(each.row()) }
    private val tokens = ToyTokens((document["toy_pieces"] as List<*>).map { (it as String).hexToBytes() })

    private fun contract(row: Row) = Contract(
        row.int("vocab_size"),
        row.text("vocab_hash"),
        row["special"].row().mapValues { (it.value as Long).toInt() },
        row.text("template_hash"),
    )

    private fun anchors(row: Row, contract: Contract) = AnchorSet(
        row["positions"].ints(),
        row["ids"].ints(),
        row.int("canvas"),
        contract,
        (row["length"] as Long?)?.toInt(),
    )

    private fun extras(row: Row) = Extras(
        row["prompt"] as String?,
        row.int("step"),
        row.int("total_steps"),
        row["confidence"].ints(),
    )

    private fun promptIds(row: Row): IntArray? = row["prompt_ids"]?.ints()?.toIntArray()

    @TestFactory
    fun `every vector of the format`(): List<DynamicTest> = vectors.map { row ->
        dynamicTest("vector: ${row.text("name")}") {
            val data = row.text("payload").hexToBytes()
            val contract = contracts.getValue(row.text("contract"))
            val error = row["error"] as String?
            if (error != null) {
                // An invalid delta is refused before its base is checked.
                val found = assertThrows(PayloadException::class.java) {
                    Payloads.decode(data, Shared(contract, promptIds(row), tokens))
                }
                assertEquals(error.replace("Error", "Exception"), found.javaClass.simpleName)
                assertTrue("expected" in found.message!!, found.message)
            } else {
                val base = vectors.firstOrNull { it["name"] == row["base"] }?.let {
                    Base(it.text("payload").hexToBytes(), anchors(it["anchors"].row(), contract))
                }
                val wanted = row["anchors"].row()
                val shared = Shared(contract, promptIds(row), tokens, base)
                assertEquals(anchors(wanted, contract), Payloads.decode(data, shared))
                val header = Payloads.peek(data)
                assertEquals(row["codec"], header.codec.label)
                assertEquals(extras(wanted), header.extras)
            }
        }
    }

    @Test
    fun `the vectors belong to this model file`() {
        assertEquals(document["model_sha256"], ModelFile.hash.toHex())
        for ((name, contract) in contracts) {
            assertEquals(document["contracts"].row()[name].row()["identity"], contract.identity)
        }
    }

    @Test
    fun `random bodies decode as in Python`() {
        var read = 0
        for (row in expected["sealed"].rows()) {
            val contract = contracts.getValue(row.text("contract"))
            val base = (row["base"] as String?)?.hexToBytes()?.let { Base(it, Payloads.decode(it, Shared(contract))) }
            val data = row.text("payload").hexToBytes()
            val found = try {
                Payloads.decode(data, Shared(contract, promptIds(row), tokens, base))
            } catch (error: PayloadException) {
                assertEquals(row["error"], error.javaClass.simpleName.replace("Exception", "Error"), "$row $error")
                continue
            }
            assertTrue(row["error"] == null) { "$row" }
            assertEquals(anchors(row["anchors"].row(), contract), found)
            assertEquals(extras(row["anchors"].row()), Payloads.peek(data).extras)
            read++
        }
        assertTrue(read > 50)
    }

    @TestFactory
    fun `hostile inputs are refused`(): List<DynamicTest> =
        File(repo, "tests/payload/hostile").listFiles { file -> file.extension == "bin" }!!.sorted().map { file ->
            dynamicTest("hostile: ${file.name}") {
                // Most are refused for their checksum; the random bodies above have a matching one.
                val data = file.readBytes()
                assertThrows(PayloadException::class.java) {
                    Payloads.decode(data.copyOfRange(1, data.size), Shared(contracts.getValue("toy"), null, tokens))
                }
            }
        }

    @Test
    fun `distinct tokens are read, and each of them again`() {
        val body = File(repo, "tests/payload/hostile/many_slots.bin").readBytes().let { it.copyOfRange(2, it.size) }
        val ids = CompactCodec.decode(body, contracts.getValue("qwen"), IntArray(0), null).anchors.toSortedMap().values
        assertEquals(ids.take(ids.size / 2).sorted(), ids.drop(ids.size / 2).sorted())
        assertEquals(ids.size / 2, ids.toSet().size)
    }

    @Test
    fun `small bodies take bounded time`() {
        for (contract in contracts.values) {
            for (fill in listOf(0, 1, 0xFF)) {
                val body = ByteArray(4000) { fill.toByte() }
                try {
                    CompactCodec.decode(body, contract, IntArray(0), null)
                } catch (expected: PayloadException) {
                    // A refusal is as good as a result.
                }
            }
        }
    }

    @Test
    fun `a template without a tokenizer is refused`() {
        val data = vectors.first { it["name"] == "template-gzip: one token" }.text("payload").hexToBytes()
        assertThrows(TokenizerRequiredException::class.java) { Payloads.decode(data, Shared(contracts.getValue("toy"))) }
    }

    @Test
    fun `codec predictive is refused without a model, its header read`() {
        val toy = contracts.getValue("toy")
        val data = byteArrayOf(0x5C, 0x12, 0, 0, 1, 2, 3)
        assertEquals(Codec.PREDICTIVE, Payloads.peek(data).codec)
        val error = assertThrows(FingerprintException::class.java) {
            Payloads.decode(data, Shared(toy, IntArray(3), tokens))
        }
        assertTrue("predictive" in error.message!! && "compact" in error.message!!)
        assertThrows(MalformedPayloadException::class.java) { Payloads.peek(byteArrayOf(0x58, 0x12, 0, 0, 1)) }
    }

    @Test
    fun `every truncation of a payload is refused`() {
        val data = vectors.first { it["name"] == "compact: a carried prompt" }.text("payload").hexToBytes()
        for (size in data.indices) {
            assertThrows(PayloadException::class.java) {
                Payloads.decode(data.copyOf(size), Shared(contracts.getValue("toy"), null, tokens))
            }
        }
        assertEquals("Où? ".repeat(20), Payloads.peek(data).extras.prompt)
    }
}
