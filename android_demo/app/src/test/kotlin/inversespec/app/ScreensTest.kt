package inversespec.app

import android.app.AlertDialog
import android.content.Intent
import android.net.Uri
import android.text.Spanned
import android.text.style.ForegroundColorSpan
import android.widget.LinearLayout
import android.widget.TextView
import com.sun.net.httpserver.HttpServer
import inversespec.edge.Payloads
import java.io.ByteArrayInputStream
import java.io.ByteArrayOutputStream
import java.io.File
import java.io.IOException
import java.net.InetAddress
import java.net.InetSocketAddress
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNotEquals
import org.junit.Assert.assertTrue
import org.junit.Before
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Config
import org.robolectric.annotation.GraphicsMode
import org.robolectric.annotation.LooperMode
import org.robolectric.shadows.ShadowDialog

/** The real activity, the shipped bundle and samples, the desktop's ONNX Runtime. */
@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35], application = App::class, qualifiers = "w411dp-h891dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@LooperMode(LooperMode.Mode.PAUSED)
class ScreensTest {
    private var phone: Phone? = null

    private fun start(intent: Intent? = null) = Phone(intent).also { phone = it }

    /** A share of [bytes] from another app. */
    private fun share(bytes: ByteArray): Intent {
        val uri = Uri.parse("content://other.app/payload")
        shadowOf(RuntimeEnvironment.getApplication().contentResolver).registerInputStream(uri, ByteArrayInputStream(bytes))
        return Intent(Intent.ACTION_SEND).setType("application/octet-stream").putExtra(Intent.EXTRA_STREAM, uri)
    }

    @Before
    fun samplesAreThere() = assertTrue("the assets hold samples: run `make apk`", Phone.samples().size >= 3)

    @After
    fun leave() {
        phone?.leave()
    }

    @Test
    fun `the first start fills a sample without a network`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.settle()
        val sample = Phone.samples().first()
        assertEquals(sample.prompt, phone.text(R.id.prompt))
        assertEquals(phone.activity.getString(R.string.payload_title, Phone.bytes(sample).size), phone.text(R.id.payload_title))

        phone.tap(R.id.go)
        phone.wait(Phase.DONE)
        val state = phone.app.fill.state.value
        val answer = phone.activity.findViewById<TextView>(R.id.answer)!!.text as Spanned
        assertEquals(state.answer.text, answer.toString())
        assertTrue("words, not fragments: $answer", answer.toString().split(" ").size > 10)
        val colours = answer.getSpans(0, answer.length, ForegroundColorSpan::class.java).map { it.foregroundColor }.toSet()
        assertEquals(setOf(phone.activity.getColor(R.color.cloud), phone.activity.getColor(R.color.edge)), colours)
        val stats = state.stats!!
        assertEquals(stats.tokens, state.answer.cloud + state.answer.edge)
        assertEquals(stats.anchors, state.answer.cloud)
        assertFalse(phone.isShown(R.id.fill_error_card))
        phone.photograph("fill-light")
    }

    @Test
    fun `text arrives piece by piece`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.tap(R.id.go)
        val seen = ArrayList<String>()
        repeat(3) { phone.midAnswer { seen += phone.text(R.id.answer) } }
        phone.wait(Phase.DONE)
        seen += phone.text(R.id.answer)
        for ((part, longer) in seen.zipWithNext()) assertTrue("'$part' begins '$longer'", longer.startsWith(part))
        assertTrue("${seen[0]} is not the whole answer", seen.first().length < seen.last().length)
    }

    @Test
    fun `turning the phone neither stops nor repeats an answer`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.tap(R.id.go)
        val before = phone.activity
        phone.midAnswer {
            val part = phone.text(R.id.answer)
            phone.turn("land")
            assertNotEquals("a new activity", before, phone.activity)
            assertEquals(part, phone.text(R.id.answer))
        }
        phone.wait(Phase.DONE)
        assertEquals(phone.app.fill.state.value.answer.text, phone.text(R.id.answer))
        assertEquals(Phone.samples().first().prompt, phone.text(R.id.prompt))
        val whole = phone.text(R.id.answer)
        phone.photograph("fill-landscape")
        phone.turn("port")
        assertEquals(whole, phone.text(R.id.answer))
        phone.tap(R.id.go)
        phone.wait(Phase.DONE)
        assertEquals("the same again", whole, phone.text(R.id.answer))
    }

    @Test
    fun `stop leaves the model ready`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.tap(R.id.go)
        phone.midAnswer { phone.tap(R.id.go) }
        phone.wait(Phase.STOPPED)
        assertTrue("what was written stays", phone.text(R.id.answer).isNotEmpty())
        assertEquals(phone.activity.getString(R.string.status_stopped), phone.text(R.id.status))
        phone.tap(R.id.go)
        phone.wait(Phase.DONE)
        assertTrue(phone.text(R.id.answer).isNotEmpty())
    }

    @Test
    fun `without a payload the device writes alone`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.settle()
        phone.tap(R.id.payload_clear)
        phone.tap(R.id.go)
        phone.wait(Phase.DONE)
        assertEquals(0, phone.app.fill.state.value.answer.cloud)
        assertTrue(phone.app.fill.state.value.answer.edge > 0)
    }

    @Test
    fun `a shared payload that was changed on its way shows why it is refused`() {
        val sample = Phone.samples().first()
        val changed = Phone.bytes(sample).also { it[it.size / 2] = (it[it.size / 2] + 1).toByte() }
        val phone = start(share(changed))
        phone.wait("the payload") { phone.app.fill.state.value.payload != null }
        phone.app.fill.setPrompt(sample.prompt)
        phone.settle()
        phone.tap(R.id.go)
        phone.wait(Phase.FAILED)
        assertTrue(phone.isShown(R.id.fill_error_card))
        assertEquals(phone.app.fill.state.value.error, phone.text(R.id.fill_error))
        assertTrue(phone.text(R.id.fill_error), phone.text(R.id.fill_error).length > 20)
        phone.photograph("fill-error")
    }

    @Test
    fun `what is no payload is refused at once`() {
        for (bytes in listOf(ByteArray(0), ByteArray(3), ByteArray(100) { -1 }, ByteArray(1 shl 20))) {
            val phone = start(share(bytes))
            phone.wait(Phase.FAILED)
            assertTrue(phone.isShown(R.id.fill_error_card))
            assertEquals(null, phone.app.fill.state.value.payload)
            phone.leave()
        }
        phone = null
    }

    @Test
    fun `an address is checked before it is asked`() {
        val phone = start()
        for (address in listOf("", "payload", "ftp://host/p", "https:///p")) {
            phone.app.fill.openAddress(address)
            phone.wait(Phase.FAILED)
            assertTrue(address, "https://host/path" in phone.text(R.id.fill_error))
        }
    }

    @Test
    fun `a payload is fetched from its address, and nothing larger than a payload`() {
        val sample = Phone.samples().first()
        val pages = mapOf("/payload" to Phone.bytes(sample), "/large" to ByteArray(1 shl 20))
        val server = HttpServer.create(InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0)
        server.createContext("/") { exchange ->
            val page = pages[exchange.requestURI.path]
            exchange.sendResponseHeaders(if (page == null) 404 else 200, page?.size?.toLong() ?: -1)
            try {
                exchange.responseBody.use { body -> page?.let(body::write) }
            } catch (hungUp: IOException) {
                // The app stops reading where a payload must have ended.
            }
        }
        server.start()
        try {
            val phone = start()
            val host = "http://localhost:${server.address.port}"
            phone.app.fill.openAddress("$host/missing")
            phone.wait(Phase.FAILED)
            assertTrue("404" in phone.text(R.id.fill_error))
            phone.app.fill.openAddress("$host/large")
            phone.wait(Phase.FAILED)
            assertTrue(Payloads.MAX_BYTES.toString() in phone.text(R.id.fill_error))
            phone.app.fill.openAddress("$host/payload")
            phone.wait(Phase.IDLE)
            phone.app.fill.setPrompt(sample.prompt)
            phone.tap(R.id.go)
            phone.wait(Phase.DONE)
            assertTrue(phone.app.fill.state.value.answer.cloud > 0)
        } finally {
            server.stop(0)
        }
    }

    @Test
    fun `models are checked, imported and refused`() {
        val phone = start()
        phone.tap(R.id.tab_models)
        phone.wait("the built-in model") { phone.app.models.state.value.installed.isNotEmpty() }
        phone.settle()
        val list = phone.activity.findViewById<LinearLayout>(R.id.model_list)!!
        assertEquals(1, list.childCount)
        val installed = phone.app.models.state.value.installed.single()
        assertTrue(installed.inUse && installed.builtIn && installed.problem == null)

        phone.tap(R.id.model_verify)
        phone.wait("the check") { phone.app.models.state.value.message != null }
        assertFalse(phone.text(R.id.models_message), phone.app.models.state.value.failed)
        phone.photograph("models-light")

        fun import(change: (String, ByteArray) -> ByteArray) {
            val uri = Uri.parse("content://files/bundle.zip")
            shadowOf(phone.app.contentResolver).registerInputStream(uri, ByteArrayInputStream(zip(change)))
            phone.app.models.importZip(uri)
            phone.wait("the import") { phone.app.models.state.value.let { it.job == null && it.message != null } }
            phone.settle()
        }
        import { _, bytes -> bytes }
        assertFalse(phone.text(R.id.models_message), phone.app.models.state.value.failed)
        import { name, bytes -> if (name.endsWith("model.onnx.data")) bytes.also { it[9] = (it[9] + 1).toByte() } else bytes }
        assertTrue(phone.text(R.id.models_message), phone.app.models.state.value.failed)
        assertTrue(phone.text(R.id.models_message), "sha" in phone.text(R.id.models_message).lowercase())
        assertEquals("nothing half-installed", 1, phone.app.models.state.value.installed.size)

        phone.freeMemory(1000)
        phone.app.models.state.value.installed.single().let { phone.activity.chooseVariant(it) }
        (ShadowDialog.getLatestDialog() as AlertDialog).listView.performItemClick(null, 0, 0)
        phone.settle()
        val warning = shadowOf(ShadowDialog.getLatestDialog() as AlertDialog)
        assertEquals(phone.activity.getString(R.string.memory_title), warning.title)
        phone.freeMemory(3L shl 30)

        phone.tap(R.id.model_use)
        val dialog = ShadowDialog.getLatestDialog() as AlertDialog
        assertEquals(installed.info!!.variants.size, dialog.listView.adapter.count)
        val other = installed.info!!.variants.indexOfFirst { it.name != installed.variant }
        dialog.listView.performItemClick(null, other, other.toLong())
        phone.wait("the variant") { phone.app.models.state.value.installed.single().variant != installed.variant }
        phone.app.fill.openSample(Phone.samples().first())
        phone.wait(Phase.IDLE)
        phone.app.fill.start()
        phone.wait(Phase.DONE)
    }

    private fun zip(change: (String, ByteArray) -> ByteArray): ByteArray {
        val root = File(System.getProperty("bundle"))
        val out = ByteArrayOutputStream()
        ZipOutputStream(out).use { zip ->
            for (file in root.walk().filter { it.isFile }) {
                val name = file.relativeTo(root).path
                zip.putNextEntry(ZipEntry("tiny/$name"))
                zip.write(change(name, file.readBytes()))
            }
        }
        return out.toByteArray()
    }

    @Test
    fun `the benchmark draws its curve and shares its figures`() {
        val phone = start()
        phone.tap(R.id.tab_bench)
        phone.tap(R.id.bench_run)
        phone.wait("the curve") { phone.app.bench.state.value.let { !it.running && it.points.isNotEmpty() } }
        phone.settle()
        val points = phone.app.bench.state.value.points
        assertEquals(1, points.first().tokens)
        assertTrue(points.all { it.milliseconds > 0 })
        phone.photograph("bench-light")
        phone.tap(R.id.bench_share)
        val chooser = shadowOf(RuntimeEnvironment.getApplication()).nextStartedActivity
        @Suppress("DEPRECATION")
        val sent = chooser.getParcelableExtra<Intent>(Intent.EXTRA_INTENT)!!.getStringExtra(Intent.EXTRA_TEXT)!!
        assertTrue(sent, points.size + 4 == sent.lines().size)
    }

    @Test
    @Config(qualifiers = "w411dp-h891dp-port-night-xhdpi")
    fun `every screen has its dark form`() {
        val phone = start()
        phone.wait("the first sample") { phone.app.fill.state.value.payload != null }
        phone.tap(R.id.go)
        phone.wait(Phase.DONE)
        phone.photograph("fill-dark")
        phone.tap(R.id.tab_bench)
        phone.tap(R.id.bench_run)
        phone.wait("the curve") { phone.app.bench.state.value.let { !it.running && it.points.isNotEmpty() } }
        phone.photograph("bench-dark")
        phone.tap(R.id.tab_models)
        phone.photograph("models-dark")
    }
}
