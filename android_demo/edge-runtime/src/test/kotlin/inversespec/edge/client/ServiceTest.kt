package inversespec.edge.client

import inversespec.edge.*
import org.junit.jupiter.api.*
import org.junit.jupiter.api.Assertions.*
import java.io.File

/** An answer as a screen would hold it: tokens that are taken back are gone. */
internal class Screen : (AnswerEvent) -> Unit {
    val events = ArrayList<AnswerEvent>()
    private val tokens = ArrayList<Token>()
    private var tail = ""

    val text: String get() = tokens.joinToString("") { it.text } + tail

    override fun invoke(event: AnswerEvent) {
        events.add(event)
        if (event is Token) {
            assertEquals(tokens.size, event.position)
            tokens.add(event)
        }
        if (event is Retract) {
            assertTrue(event.position in tokens.indices)
            tokens.subList(event.position, tokens.size).clear()
        }
    }

    fun finish(stats: FillStats): FillStats {
        tail = stats.tail
        assertEquals(tokens.size, stats.tokens)
        return stats
    }
}

/** The client and the runtime against the real service of the Python package, with the shipped pair. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
internal class ServiceTest {
    // On this copy of the bundle all versions of ONNX Runtime agree.
    private val bundle = File(expected["fills"].rows().first().text("bundle"))
    private lateinit var service: PythonService
    private lateinit var runtime: EdgeRuntime

    @BeforeAll
    fun start() {
        val keys = File.createTempFile("keys", ".txt").apply { writeText("$KEY\n") }
        service = PythonService("--keys", keys.path, "--batch", "2", "--queue", "1").awaitReady()
        runtime = EdgeRuntime.open(bundle, RuntimeOptions(threads = 1))
    }

    @AfterAll
    fun stop() {
        if (::service.isInitialized) service.close()
        if (::runtime.isInitialized) runtime.close()
    }

    private fun client(timeout: Double = 60.0, attempts: Int = 4) = ServiceClient(service.url, KEY, timeout, attempts)

    private fun python(vararg options: String): String {
        val keyFile = File.createTempFile("key", ".txt").apply { writeText(KEY) }
        val asked = arrayOf("--url", service.url, "--key-file", keyFile.path, "--timeout", "60")
        return PythonService.fill("--prompt", PROMPT, "--edge", bundle.path, *asked, *options)["text"] as String
    }

    private fun alone(): String = Screen().also { screen ->
        screen.finish(runtime.fill(null, PROMPT) { screen(it) })
    }.text

    @Test
    fun `fetched and streamed, the text is that of the Python command`() {
        val screen = Screen()
        val stats = screen.finish(runtime.answer(client(), PROMPT, ServiceOptions(listOf(0.1)), onEvent = screen))
        assertEquals(python("--no-stream", "--fraction", "0.1"), screen.text)
        assertTrue(stats.anchors > 0 && stats.service!!.payloadBytes.size == 1)
        assertNull(stats.service!!.failure)

        val streamed = Screen()
        val refined = ServiceOptions(listOf(0.1), stream = true)
        val total = streamed.finish(runtime.answer(client(), PROMPT, refined, onEvent = streamed))
        assertEquals(python("--stream", "--fraction", "0.1"), streamed.text)
        assertEquals(1 to 1, total.service!!.payloadBytes.size to streamed.events.count { it is PayloadReceived })
        assertTrue(streamed.text != alone()) // the service knows what the device does not
    }

    @Test
    fun `the answer has the cloud's doubt, unless it is left out`() {
        for (stream in listOf(false, true)) {
            val asked = ServiceOptions(listOf(0.1), stream)
            assertTrue(runtime.answer(client(), PROMPT, asked) {}.service!!.doubt!! in 0.025..0.75)
        }
        val without = ServiceOptions(listOf(0.1), confidence = false)
        assertNull(runtime.answer(client(), PROMPT, without) {}.service!!.doubt)
    }

    @Test
    fun `a cut answer is refined to the same text`() {
        val options = FillOptions(maxTokens = 9)
        val screen = Screen()
        val stats = screen.finish(
            runtime.answer(client(), PROMPT, ServiceOptions(stream = true), options = options, onEvent = screen),
        )
        assertEquals(python("--stream", "--max-tokens", "9"), screen.text)
        assertEquals(9 to Stop.LIMIT, stats.tokens to stats.stop)
    }

    @Test
    fun `predictive payloads are decoded with the device's model`() {
        EdgeRuntime.open(shippedBundle, RuntimeOptions(threads = 1)).use { device ->
            val options = ServiceOptions(listOf(0.1), codec = Codec.PREDICTIVE)
            val screen = Screen()
            val stats = screen.finish(device.answer(client(), PROMPT, options, onEvent = screen))
            assertNull(stats.service!!.fellBack)
            val compact = client().fetch(ChatMessage.prompt(PROMPT), fraction = 0.1, codec = Codec.COMPACT)
            assertTrue(stats.service!!.payloadBytes.single() < compact.size)
            val wanted = python("--no-stream", "--fraction", "0.1", "--codec", "compact")
            assertEquals(wanted, screen.text)
        }
    }

    @Test
    fun `a device with other numbers asks for compact by itself`() {
        val wanted = python("--no-stream", "--fraction", "0.1")
        for (stream in listOf(false, true)) { // the copy's graph is another model than the service's
            val screen = Screen()
            val options = ServiceOptions(listOf(0.1), stream, codec = Codec.PREDICTIVE)
            val stats = screen.finish(runtime.answer(client(), PROMPT, options, onEvent = screen))
            assertEquals(wanted, screen.text)
            assertTrue("ask for codec compact" in stats.service!!.fellBack!!)
            assertEquals(1, screen.events.count { it is CompactRequested })
            assertEquals(1, stats.service!!.payloadBytes.size)
        }
    }

    @Test
    fun `a wrong key and another contract are refused`() {
        for (stream in listOf(false, true)) {
            val error = assertThrows(CloudRefusedException::class.java) {
                runtime.answer(ServiceClient(service.url, "x".repeat(24)), PROMPT, ServiceOptions(stream = stream)) {}
            }
            assertTrue("401" in error.message!!, error.message)
        }
        val other = assertThrows(CloudRefusedException::class.java) {
            client().fetch(ChatMessage.prompt(PROMPT), contract = "0".repeat(64))
        }
        assertTrue("409" in other.message!! && "contract_mismatch" in other.message!!, other.message)
        assertEquals(alone(), alone())
    }

    /** The paper's selection: an answer is not complete after its first payload. */
    @Test
    fun `a stream refines the answer, and one that is killed half-way leaves what it sent`() {
        PythonService("--select", "paper").awaitReady().use { doomed ->
            val client = ServiceClient(doomed.url, timeoutSeconds = 60.0)
            val fractions = listOf(0.05, 0.1, 0.5)
            val screen = Screen()
            val stats = screen.finish(
                runtime.answer(client, PROMPT, ServiceOptions(fractions, stream = true), onEvent = screen),
            )
            val same = fractions.flatMap { listOf("--fraction", "$it") }.toTypedArray()
            val asked = arrayOf("--prompt", PROMPT, "--edge", bundle.path, "--url", doomed.url, "--timeout", "60")
            assertEquals(PythonService.fill(*asked, "--stream", *same)["text"], screen.text)
            assertEquals(3 to 3, stats.service!!.payloadBytes.size to screen.events.count { it is PayloadReceived })

            EdgeRuntime.open(shippedBundle, RuntimeOptions(threads = 1)).use { device ->
                val all = ServiceOptions(fractions, stream = true, codec = Codec.PREDICTIVE)
                val seen = Screen()
                val cost = seen.finish(device.answer(client, PROMPT, all, onEvent = seen)).service!!
                assertEquals(null to 3, cost.fellBack to cost.payloadBytes.size)
                assertEquals(screen.events.filterIsInstance<PayloadReceived>().map { it.anchors },
                    seen.events.filterIsInstance<PayloadReceived>().map { it.anchors })
            }
            val before = PythonService.fill(*asked, "--no-stream", "--fraction", "0.02")["text"]
            val broken = Screen()
            val half = broken.finish(
                runtime.answer(client, PROMPT, ServiceOptions(listOf(0.02, 1.0), stream = true)) { event ->
                    broken(event)
                    if (event is PayloadReceived) doomed.kill()
                },
            )
            assertEquals(1, half.service!!.payloadBytes.size)
            assertEquals(ServiceFailed(half.service!!.failure!!, false), broken.events.single { it is ServiceFailed })
            assertEquals(before, broken.text)
        }
    }

    private companion object {
        const val KEY = "a-key-of-the-test-of-24-c"
        const val PROMPT = "Tell me about Torden: its river, mayor, craft, dish and age."
    }
}
