package inversespec.edge

import org.junit.jupiter.api.*
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.io.TempDir
import java.io.File
import java.time.Duration

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
    }

    @Test
    fun `a saved session goes on, and on another model too`() {
        val session = EdgeSession(runtime, "Be brief.")
        session.ask("Describe the town of Vell. \uD83C\uDF89", short) {}
        session.isPrivate = true
        val file = File(folder, "new/talk.session")
        session.save(file)
        val expected = session.clone().ask("And then?", short) {}
        val again = EdgeSession.load(file, runtime)
        assertEquals(session.messages, again.messages)
        assertTrue(again.isPrivate && again.clone().isPrivate)
        val answer = again.ask("And then?", short) {}
        assertEquals(expected.tokens.map { it.id }, answer.tokens.map { it.id })
        EdgeRuntime.open(shippedBundle, RuntimeOptions("int8", threads = 1)).use { other ->
            assertEquals(session.messages, EdgeSession.load(file, other).messages)
            assertTrue(again.clone(other).run { isPrivate && runtime === other })
        }
        EdgeSession(runtime).save(file)
        assertEquals(emptyList<ChatMessage>(), EdgeSession.load(file, runtime).messages)
    }

    @Test
    fun `a file that is no session is one error`() {
        val file = File(folder, "talk")
        val format = "\"format\": \"inverse speculation session 2\""
        val broken = listOf(
            "", "[", "{}", "\u00ff", "[".repeat(100), " ".repeat((16 shl 20) + 1),
            "{$format, \"messages\": []}",
            "{\"format\": \"inverse speculation session 1\", \"private\": false, \"messages\": []}",
            "{$format, \"private\": false, \"messages\": [[\"king\", \"x\"]]}",
            "{$format, \"private\": false, \"messages\": [[\"user\", 7]]}",
            "{$format, \"private\": false, \"messages\": [[\"user\"]]}",
        )
        for (text in broken) {
            file.writeText(text, Charsets.ISO_8859_1)
            assertThrows(SessionFileException::class.java, { EdgeSession.load(file, runtime) }) { text.take(80) }
        }
        for (none in listOf(File(folder, "none"), folder)) {
            assertThrows(SessionFileException::class.java) { EdgeSession.load(none, runtime) }
        }
    }

    @Test
    fun `a history far beyond the context is not read whole`() {
        val said = List(20_000) { ChatMessage(if (it % 2 == 0) ChatRole.USER else ChatRole.ASSISTANT, "number $it of the town") }
        val system = listOf(ChatMessage(ChatRole.SYSTEM, "Be brief."))
        assertTimeoutPreemptively(Duration.ofSeconds(5)) {
            val prompt = EdgeSession(runtime, messages = system + said).prompt("And then?", short)
            val kept = prompt.messages.drop(1).dropLast(1)
            assertEquals(system, prompt.messages.take(1))
            assertEquals(said.takeLast(kept.size), kept)
            assertEquals(10_000, prompt.dropped + kept.size / 2)
            fun tokens(turns: Int) = runtime.promptTokens(system + said.takeLast(2 * turns) + prompt.messages.last())
            assertTrue(tokens(kept.size / 2) + 8 <= runtime.info.context && tokens(kept.size / 2 + 1) + 8 > runtime.info.context)
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
