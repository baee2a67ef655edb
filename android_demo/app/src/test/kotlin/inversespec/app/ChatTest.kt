package inversespec.app

import android.app.AlertDialog
import android.text.Spanned
import android.text.style.ForegroundColorSpan
import android.view.ViewGroup
import android.widget.CheckBox
import android.widget.EditText
import android.widget.Spinner
import android.widget.TextView
import com.sun.net.httpserver.HttpExchange
import com.sun.net.httpserver.HttpServer
import inversespec.edge.InferenceMode
import java.net.InetAddress
import java.net.InetSocketAddress
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Before
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.annotation.Config
import org.robolectric.annotation.GraphicsMode
import org.robolectric.annotation.LooperMode
import org.robolectric.shadows.ShadowDialog

/** The Chat screen on Robolectric, with the shipped bundle: turns, modes, sources, the process's end. */
@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35], application = App::class, qualifiers = "w411dp-h891dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@LooperMode(LooperMode.Mode.PAUSED)
class ChatTest {
    private lateinit var robot: AppRobot
    private val chat get() = robot.app.chat
    private val state get() = chat.state.value
    private val text get() = robot.text(R.id.chat_text)

    @Before
    fun start() {
        robot = AppRobot()
        robot.tap(R.id.tab_chat)
    }

    @After
    fun close() = robot.close()

    private fun <V> view(id: Int): V {
        @Suppress("UNCHECKED_CAST")
        return robot.activity.findViewById<android.view.View>(id) as V
    }

    private fun send(question: String) {
        view<EditText>(R.id.chat_question).setText(question)
        robot.tap(R.id.chat_send)
    }

    private fun ask(question: String) {
        send(question)
        answered()
    }

    private fun answered() {
        robot.waitFor("the answer") { !state.busy }
        robot.settle()
    }

    private fun choose(mode: InferenceMode) {
        view<Spinner>(R.id.chat_mode).setSelection(mode.ordinal)
        robot.settle()
        assertEquals(mode, state.mode)
    }

    /** As an application that starts anew with what is on the disk. */
    private fun anotherProcess(): ChatViewModel {
        val thread = Executors.newSingleThreadExecutor()
        val other = ChatViewModel(robot.app, robot.app.models, thread, false)
        other.start()
        thread.submit {}.get()
        thread.shutdown()
        return other
    }

    /** A service on this machine that answers as [respond] does, and the bodies of its requests. */
    private fun service(respond: (HttpExchange) -> Unit = ::onePayload, body: (CopyOnWriteArrayList<String>) -> Unit) {
        val bodies = CopyOnWriteArrayList<String>()
        val server = HttpServer.create(InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0)
        server.createContext("/v1/") { exchange ->
            bodies += exchange.requestBody.readBytes().toString(Charsets.UTF_8)
            exchange.use { respond(it) }
        }
        server.start()
        try {
            use("http://localhost:${server.address.port}")
            body(bodies)
        } finally {
            server.stop(0)
        }
    }

    private fun HttpExchange.use(respond: (HttpExchange) -> Unit) = try {
        respond(this)
    } finally {
        close()
    }

    private fun onePayload(exchange: HttpExchange) {
        val data = AppRobot.bytes(AppRobot.samples().first())
        exchange.responseHeaders["Content-Type"] = "application/octet-stream"
        exchange.sendResponseHeaders(200, data.size.toLong())
        exchange.responseBody.write(data)
    }

    /** Enters a service's address, and a key. */
    private fun use(address: String, key: String = "") {
        robot.tap(R.id.chat_service)
        val dialog = ShadowDialog.getLatestDialog().findViewById<ViewGroup>(android.R.id.custom)!!
        val fields = dialog.getChildAt(0) as ViewGroup
        (fields.getChildAt(0) as EditText).setText(address)
        (fields.getChildAt(1) as EditText).setText(key)
        robot.tapDialog(AlertDialog.BUTTON_POSITIVE)
    }

    @Test
    fun `a service's address is checked before anything is sent`() {
        for (address in listOf("", "service", "ftp://host/p", "https:///p", "http://example.com")) {
            use(address)
            assertTrue(address, "https" in robot.text(R.id.chat_error))
            assertEquals(null, chat.service)
        }
    }

    @Test
    fun `without the service the device answers alone and says so, and a wrong key is refused`() {
        choose(InferenceMode.PREFER_IN_CLOUD)
        service({ it.sendResponseHeaders(503, -1) }) {
            ask("Why?")
            assertTrue(state.turns.last().note!!, "503" in state.turns.last().note!!)
            assertEquals(0, state.turns.last().answer.cloudTokens)
            assertTrue("${robot.activity.getString(R.string.lead_alone)}${state.turns.last().answer.text}" in text)
        }
        service({
            it.responseHeaders["WWW-Authenticate"] = "Bearer"
            it.sendResponseHeaders(401, -1)
        }) {
            ask("And then?")
            assertTrue(robot.text(R.id.chat_error), "401" in robot.text(R.id.chat_error))
            assertEquals("And then?", robot.text(R.id.chat_question))
        }
    }

    @Test
    fun `a conversation outlives the activity and the process`() {
        ask("Describe the town of Vell.")
        val first = state.turns.single()
        assertTrue(first.answer.text.isNotEmpty())
        assertTrue(text.startsWith("Describe the town of Vell.\n${first.answer.text}\n"))
        assertTrue(robot.activity.getString(R.string.chat_on_device) in text)
        assertEquals("", robot.text(R.id.chat_question))
        ask("And then?")
        val said = state.turns.map { it.question to it.answer.text }
        assertEquals(2, said.size)
        robot.screenshot("chat-light")
        robot.rotate("land")
        assertTrue(said.all { it.second in text })
        // What the model's context no longer holds is forgotten.
        val kept = anotherProcess().state.value.turns.map { it.question to it.answer.text }
        assertTrue(kept.isNotEmpty())
        assertEquals(said.takeLast(kept.size), kept)
        robot.tap(R.id.chat_new)
        robot.waitFor("a new conversation") { state.turns.isEmpty() }
        robot.settle()
        assertEquals("", text)
        assertEquals(emptyList<Turn>(), anotherProcess().state.value.turns)
    }

    @Test
    fun `a question whose answer the process did not live to see is there again`() {
        choose(InferenceMode.PREFER_IN_CLOUD)
        val seen = CountDownLatch(1)
        service({
            seen.await()
            it.sendResponseHeaders(503, -1)
        }) {
            send("Which is taller?")
            assertEquals("Which is taller?", anotherProcess().state.value.draft)
            seen.countDown()
            answered()
            assertEquals("", anotherProcess().state.value.draft)
        }
    }

    @Test
    fun `stop keeps what was written, and the conversation goes on`() {
        send("Describe the town of Vell.")
        robot.waitFor("a part of the answer") { state.turns.last().answer.tokens.size >= 2 || !state.busy }
        chat.stop()
        answered()
        assertTrue(state.turns.single().answer.text.isNotEmpty())
        ask("And then?")
        assertEquals(2, state.turns.size)
        assertFalse(robot.isShown(R.id.chat_error))
    }

    @Test
    fun `a mode that asks needs a service, and the question is kept`() {
        choose(InferenceMode.PREFER_IN_CLOUD)
        ask("Why?")
        assertEquals(robot.activity.getString(R.string.chat_no_service), robot.text(R.id.chat_error))
        assertEquals("Why?", robot.text(R.id.chat_question))
        assertEquals(0, state.turns.size)
        choose(InferenceMode.ONLY_ON_DEVICE)
        robot.tap(R.id.chat_send)
        answered()
        assertEquals(1, state.turns.size)
        assertEquals(InferenceMode.ONLY_ON_DEVICE, anotherProcess().state.value.mode)
    }

    @Test
    fun `the cloud's words have its colour`() = service {
        val sample = AppRobot.samples().first()
        choose(InferenceMode.PREFER_IN_CLOUD)
        ask(sample.prompt)
        val shown = view<TextView>(R.id.chat_text).text as Spanned
        val colours = shown.getSpans(0, shown.length, ForegroundColorSpan::class.java).map { it.foregroundColor }
        assertTrue(robot.activity.getColor(R.color.cloud) in colours)
        assertTrue(robot.activity.getColor(R.color.edge) in colours)
        assertTrue(robot.activity.getString(R.string.chat_mixed) in text)
        robot.screenshot("chat-cloud")
    }

    @Test
    fun `what is private never leaves, nor what follows it`() = service { bodies ->
        choose(InferenceMode.PREFER_IN_CLOUD)
        view<CheckBox>(R.id.chat_private).isChecked = true
        ask("My secret?")
        assertTrue(state.isPrivate)
        view<CheckBox>(R.id.chat_private).isChecked = false
        ask("And then?")
        assertEquals(0, bodies.size)
        assertFalse(view<CheckBox>(R.id.chat_private).isEnabled)
        assertTrue(anotherProcess().state.value.isPrivate)
    }
}
