package inversespec.edge

import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestFactory
import org.junit.jupiter.api.TestInstance
import org.junit.jupiter.api.io.TempDir
import java.io.File

/** Conversations on the shipped model, compared with the Python session's. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
internal class SessionTest {
    @TempDir
    lateinit var folder: File

    private val talks: List<Row> get() = expected["conversations"].rows()
    private val lazyRuntime = lazy { EdgeRuntime.open(File(talks[0].text("bundle")), RuntimeOptions("fp32", threads = 1)) }
    private val runtime: EdgeRuntime by lazyRuntime
    private val short = FillOptions(maxTokens = 8)

    @AfterAll
    fun close() {
        if (lazyRuntime.isInitialized()) runtime.close()
    }

    private fun EdgeSession.ask(row: Row): TurnAnswer {
        val seen = ArrayList<Token>()
        val payload = (row["payload"] as String?)?.hexToBytes()
        val answer = ask(row.text("question"), FillOptions(maxTokens = row.int("max_tokens")), payload) { seen.add(it as Token) }
        assertEquals(seen, answer.tokens)
        return answer
    }

    private fun assertEqualsPython(row: Row, answer: TurnAnswer) {
        assertEquals(row["ids"].ints(), answer.tokens.map { it.id })
        assertEquals(row["source"], answer.source.label)
        assertEquals(row.int("dropped"), answer.dropped)
        assertEquals(row["said"], answer.text)
        val doubt = row["device_doubt"] as Number?
        if (doubt == null) assertEquals(null, answer.deviceDoubt) else assertEquals(doubt.toDouble(), answer.deviceDoubt!!, 0.02)
    }

    /** In Python's order, on one runtime, so that the same prefixes are reused. */
    @TestFactory
    fun `every turn has the ids of the Python session's`(): List<DynamicTest> = talks.flatMapIndexed { number, talk ->
        val session by lazy { EdgeSession(runtime, talk["system"] as String?) }
        talk["turns"].rows().mapIndexed { turn, row ->
            dynamicTest("conversation $number, turn $turn") {
                val answer = session.ask(row)
                assertEqualsPython(row, answer)
                if (number > 0) assertEquals(row.int("reused"), answer.stats.reused)
            }
        }
    }

    @Test
    fun `some turns were dropped and some have anchors, so that the comparison says something`() {
        val turns = talks.flatMap { it["turns"].rows() }
        assertTrue(turns.count { it.int("dropped") > 0 } > 3)
        assertTrue(turns.count { it["payload"] != null } > 20)
        assertTrue(turns.map { it["ids"] }.toSet().size > 80)
    }

    @Test
    fun `the file of a Python session goes on here`() {
        val file = File(File(System.getProperty("expected") ?: "target/expected.json").absoluteFile.parentFile, "talk.session")
        val session = EdgeSession.load(file, runtime)
        val row = talks.last()["turns"].rows().last()
        val answer = session.ask(row)
        assertEqualsPython(row, answer)
        assertEquals(row.int("reused"), answer.stats.reused)
    }

    @Test
    fun `a saved session goes on with its cache, and only on its own model`() {
        val session = EdgeSession(runtime, "Be brief.")
        session.ask("Describe the town of Vell. \uD83C\uDF89", short) {}
        session.isPrivate = true
        val file = File(folder, "new/talk.session")
        session.save(file)
        val expected = session.clone().ask("And then?", short) {}
        runtime.generate("Something else entirely", 3) {}
        val again = EdgeSession.load(file, runtime)
        assertEquals(session.messages, again.messages)
        assertTrue(again.isPrivate && again.clone().isPrivate)
        val answer = again.ask("And then?", short) {}
        assertEquals(expected.tokens.map { it.id }, answer.tokens.map { it.id })
        assertEquals(expected.stats.reused, answer.stats.reused)
        assertTrue(answer.stats.reused > 20)

        EdgeRuntime.open(shippedBundle, RuntimeOptions("int8", threads = 1)).use { other ->
            val error = assertThrows(SessionFileException::class.java) { EdgeSession.load(file, other) }
            assertTrue("another model" in error.message!!, error.message)
        }
        EdgeSession(runtime).save(file)
        assertEquals(emptyList<ChatMessage>(), EdgeSession.load(file, runtime).messages)
    }

    @Test
    fun `a damaged file, or another, is one error`() {
        val session = EdgeSession(runtime)
        session.ask("Hi", short) {}
        val file = File(folder, "talk")
        session.save(file)
        val whole = file.readBytes()
        val broken = listOf(ByteArray(0), whole.copyOf(40), whole.copyOf(whole.size - 1), ByteArray(90) { 7 }) +
            listOf(3, 9, 30, whole.size / 2, whole.size - 1).map { at -> whole.clone().also { it[at] = (it[at] + 1).toByte() } }
        for (data in broken) {
            file.writeBytes(data)
            assertThrows(SessionFileException::class.java) { EdgeSession.load(file, runtime) }
        }
        assertThrows(SessionFileException::class.java) { EdgeSession.load(File(folder, "none"), runtime) }
        // A sum that is right over a head that is none.
        for (head in listOf("{}", "[", "{\"messages\": [[\"king\", \"x\"]], \"tokens\": [], \"private\": false}")) {
            val size = byteArrayOf(head.length.toByte(), 0, 0, 0)
            val body = "IVSESS01".toByteArray() + size + head.toByteArray()
            file.writeBytes(body + sha256(body))
            assertThrows(SessionFileException::class.java) { EdgeSession.load(file, runtime) }
        }
    }

    @Test
    fun `a cancelled answer joins as far as it was written, and nothing where nothing was`() {
        val session = EdgeSession(runtime)
        val cancel = CancelSignal()
        var seen = 0
        val answer = session.ask("Describe the town of Vell.", cancel = cancel) { if (++seen == 3) cancel.cancel() }
        assertEquals(Stop.CANCELLED, answer.stats.stop)
        assertEquals(answer.text, session.messages.last().content)
        val before = session.messages
        session.ask("And then?", cancel = CancelSignal().apply { cancel() }) {}
        assertEquals(before, session.messages)
        assertThrows(IllegalStateException::class.java) { session.ask("More?", short) { error("enough") } }
        assertEquals(before.size + 2, session.messages.size)
        assertThrows(UsageException::class.java) { session.ask("One?", short) { session.ask("Two?", short) {} } }
        assertThrows(UsageException::class.java) { EdgeSession(runtime, "a", ChatMessage.prompt("q", "b")) }
    }
}
