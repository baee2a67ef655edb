package inversespec.edge

import inversespec.edge.client.Screen
import inversespec.edge.client.ScriptedServer
import inversespec.edge.client.ScriptedServer.Companion.http
import inversespec.edge.client.ScriptedServer.Companion.payload
import inversespec.edge.client.ScriptedServer.Companion.stream
import org.junit.jupiter.api.*
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.io.TempDir
import java.io.File

/** Modes: where a turn is answered, what leaves the device, and what the answer says of it. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
internal class ModesTest {
    @TempDir
    lateinit var folder: File

    private val lazyRuntime = lazy { EdgeRuntime.open(shippedBundle, RuntimeOptions("fp32", threads = 1)) }
    private val runtime: EdgeRuntime by lazyRuntime
    /** One whose anchors the device would not have written. */
    private val fill: Row by lazy {
        val known = expected["fills"].rows().filter { it["variant"] == "fp32" && (it["agreement"] as Double? ?: 1.0) < 0.01 }
        known.first { it["payload"] != null }
    }
    private val question get() = fill["prompt"] as String? ?: Payloads.peek(data).extras.prompt!!
    private val data get() = fill.text("payload").hexToBytes()

    @AfterAll
    fun close() {
        if (lazyRuntime.isInitialized()) runtime.close()
    }

    private fun EdgeSession.ask(
        server: ScriptedServer,
        mode: InferenceMode,
        asked: String = question,
        tokens: Int? = null,
        threshold: Double = 0.0,
        isPrivate: Boolean = false,
        onEvent: (AnswerEvent) -> Unit = {},
    ): TurnAnswer {
        val cloud = ServiceClient(server.url, attempts = 1)
        return ask(asked, FillOptions(maxTokens = tokens), null, cloud, mode, isPrivate, threshold, onEvent = onEvent)
    }

    /** The same payload in either form of answer. */
    private fun server(mode: InferenceMode) = ScriptedServer(
        if (mode == InferenceMode.PREFER_ON_DEVICE) stream(payload(data), "done" to "{}") else http("200 OK", data),
    )

    private fun bodies(server: ScriptedServer) = server.requests.map { it.substringAfter("\r\n\r\n") }

    @Test
    fun `the cloud's anchors are in the text of every mode that asks`() {
        for (mode in InferenceMode.entries - InferenceMode.ONLY_ON_DEVICE) {
            server(mode).use { server ->
                val screen = Screen()
                val session = EdgeSession(runtime)
                val answer = session.ask(server, mode, onEvent = screen)
                screen.finish(answer.stats)
                assertEquals(fill["ids"].ints(), answer.tokens.map { it.id }) { "$mode" }
                assertEquals(fill["text"], screen.text)
                assertEquals(fill["text"], session.messages.last().content)
                assertFalse(answer.source == AnswerSource.ON_DEVICE)
                assertEquals(1, server.requests.size)
                assertTrue("\"confidence\": true" in bodies(server).single())
                assertEquals(bodies(server).single().length, answer.stats.service!!.sent)
            }
        }
    }

    @Test
    fun `a device that does not doubt asks nobody, nor does one that is to answer alone`() {
        val alone = ArrayList<Int>()
        runtime.generate(question, 12) { alone.add(it.id) }
        for (mode in listOf(InferenceMode.ONLY_ON_DEVICE, InferenceMode.PREFER_ON_DEVICE)) {
            server(mode).use { server ->
                val answer = EdgeSession(runtime).ask(server, mode, tokens = 12, threshold = 1.0)
                assertEquals(alone, answer.tokens.map { it.id })
                assertEquals(AnswerSource.ON_DEVICE, answer.source)
                assertEquals(0, server.requests.size)
            }
        }
    }

    @Test
    fun `what is private never leaves, nor does what follows it`() {
        for (mode in InferenceMode.entries) {
            server(mode).use { server ->
                val session = EdgeSession(runtime)
                session.ask(server, mode, "My secret?", tokens = 8, isPrivate = true)
                session.ask(server, mode, "And then?", tokens = 8)
                assertEquals(0, server.requests.size)
                assertEquals(4, session.messages.size)
            }
        }
    }

    @Test
    fun `a conversation is sent whole`() {
        server(InferenceMode.PREFER_IN_CLOUD).use { server ->
            val session = EdgeSession(runtime)
            session.ask(server, InferenceMode.PREFER_IN_CLOUD)
            assertThrows(PayloadException::class.java) { // made for the first question
                session.ask(server, InferenceMode.PREFER_IN_CLOUD, "And then?")
            }
            assertTrue("\"messages\": [{\"role\": \"user\"" in bodies(server)[1])
            assertEquals(2, session.messages.size)
        }
    }

    @Test
    fun `without a network the device answers, or it is an error`() {
        ScriptedServer(null).use { server ->
            for (mode in listOf(InferenceMode.PREFER_ON_DEVICE, InferenceMode.PREFER_IN_CLOUD)) {
                val screen = Screen()
                val answer = EdgeSession(runtime).ask(server, mode, tokens = 8, onEvent = screen)
                assertEquals(AnswerSource.ON_DEVICE, answer.source)
                assertTrue(screen.events.any { it is ServiceFailed && it.alone })
            }
            assertThrows(CloudUnavailableException::class.java) {
                EdgeSession(runtime).ask(server, InferenceMode.ONLY_IN_CLOUD)
            }
        }
    }

    @Test
    fun `a mode that asks needs a cloud`() {
        for (mode in InferenceMode.entries - InferenceMode.ONLY_ON_DEVICE) {
            assertThrows(UsageException::class.java) { EdgeSession(runtime).ask(question, mode = mode) {} }
        }
    }

    @Test
    fun `a bundle's limits of doubt are in its description, and an answer says whether it is sure`() {
        val copy = File(folder, "bundle")
        shippedBundle.copyRecursively(copy)
        val manifest = File(copy, "bundle.json")
        val text = manifest.readText()
        val end = text.lastIndexOf('}')
        fun with(limit: String) = manifest.writeText(text.substring(0, end) + ", \"ask_from\": 0.4, \"not_sure_from\": $limit}")
        for (wrong in listOf("2", "\"x\"", "-0.1")) {
            with(wrong)
            assertThrows(BundleSchemaException::class.java) { Bundles.inspect(copy) }
        }
        assertNull(Bundles.inspect(shippedBundle).notSureFrom)
        for ((limit, unsure) in listOf("1" to false, "0" to true)) {
            with(limit)
            EdgeRuntime.open(copy, RuntimeOptions("fp32", threads = 1)).use { model ->
                assertEquals(0.4, model.info.askFrom)
                assertNull(model.fill(data, question) {}.notSure) // a payload that does not say how sure the cloud was
                val said = expected["confident"].row()
                val stats = model.fill(said.text("payload").hexToBytes(), said.text("prompt")) {}
                assertEquals(said["doubt"] as Double, stats.doubt!!, 1e-9)
                assertEquals(unsure, stats.notSure)
            }
        }
    }
}
