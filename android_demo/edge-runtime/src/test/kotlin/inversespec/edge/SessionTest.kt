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
        val answer = ask(row.text("question"), FillOptions(maxTokens = row.int("max_tokens")), payload) { seen.add(it) }
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

    @Test
    fun `the day's budget is kept in a file and counted by link`() {
        val file = File(folder, "state/budget.json")
        var day = 100L
        fun budget() = DailyBudget(file, Limits(requests = 2, bytes = 100), days = { day })
        budget().begin("a")
        budget().spend("a", Spent(bytes = 60, money = 0.5))
        assertEquals(Spent(1, 60, 0.5), budget().spent("a"))
        budget().begin("b")
        budget().begin("a")
        assertThrows(BudgetSpentException::class.java) { budget().begin("a") }
        day = 101
        budget().begin("a")
        day = 99 // a clock that goes back
        assertEquals(Spent(1), budget().spent("a"))
        budget().spend("a", Spent(bytes = 100))
        assertThrows(BudgetSpentException::class.java) { budget().begin("a") }
        for (text in listOf("{", "[]", "{\"day\": 1, \"links\": {\"x\": [1]}}")) {
            file.writeText(text)
            assertThrows(UsageException::class.java) { budget().begin("a") }
        }
        assertFalse(File(folder, "state/budget.json.part").exists())
    }

    @Test
    fun `answers are remembered by key, up to an age and a size`() {
        val file = File(folder, "state/answers.json")
        val contract = runtime.info.contract
        var now = 1_000L
        fun memory(most: Int = 400) = AnswerMemory(file, age = 100, most = most, seconds = { now })
        fun anchors(id: Int) = AnchorSet(listOf(0, 3), listOf(id, 12), 64, contract, 5)
        memory().put("a", anchors(7), 0.25)
        now += 60
        memory().put("b", anchors(8), null)
        val found = memory().get("a", contract)!!
        assertEquals(anchors(7) to 0.25, found.anchors to found.doubt)
        now += 60
        assertNull(memory().get("a", contract)) // too old
        assertNull(memory().get("b", contract)!!.doubt)
        for (number in 0 until 20) memory().put("c$number", anchors(number), 0.5)
        assertTrue(file.length() <= 400)
        assertNull(memory().get("b", contract))
        assertEquals(anchors(19), memory().get("c19", contract)!!.anchors)
        assertNull(memory(most = 100).get("c19", contract)) // a file that is too large is none of its own
        for (row in listOf("[1, 2]", "[$now, [0], [999999999], 64, null, null]", "[$now, [\"0\"], [1], 64, null, null]", "7")) {
            file.writeText("{\"c19\": $row}")
            assertNull(memory().get("c19", contract))
        }
        for (text in listOf("{", "[]", "")) {
            file.writeText(text)
            assertNull(memory().get("c19", contract))
        }
        memory().put("d", anchors(9), null)
        assertEquals(anchors(9), memory().get("d", contract)!!.anchors)
        assertFalse(memoryKey(listOf("x", "y")) == memoryKey(listOf("x\", \"y")))
        assertThrows(UsageException::class.java) { AnswerMemory(File(file, "no folder"), 1).put("e", anchors(1), null) }
    }
}
