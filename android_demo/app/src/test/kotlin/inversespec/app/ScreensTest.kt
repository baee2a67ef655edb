package inversespec.app

import android.app.AlertDialog
import android.content.Intent
import android.net.Uri
import android.text.Spanned
import android.text.style.ForegroundColorSpan
import android.view.View
import android.view.ViewGroup
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import inversespec.edge.Payloads
import java.io.ByteArrayInputStream
import java.io.ByteArrayOutputStream
import java.io.File
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNotEquals
import org.junit.Assert.assertNull
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

/** The real activity on Robolectric, with the shipped bundle and samples and the desktop natives of ONNX Runtime. */
@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35], application = App::class, qualifiers = "w411dp-h891dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@LooperMode(LooperMode.Mode.PAUSED)
class ScreensTest {
    private var robot: AppRobot? = null

    private fun start(intent: Intent? = null) = AppRobot(intent).also { robot = it }

    /** The intent with which another app shares [bytes]. */
    private fun share(bytes: ByteArray): Intent {
        val uri = Uri.parse("content://other.app/payload")
        shadowOf(RuntimeEnvironment.getApplication().contentResolver).registerInputStream(uri, ByteArrayInputStream(bytes))
        return Intent(Intent.ACTION_SEND).setType("application/octet-stream").putExtra(Intent.EXTRA_STREAM, uri)
    }

    @Before
    fun samplesExist() = assertTrue("the assets hold samples: run `make apk`", AppRobot.samples().size >= 3)

    @After
    fun close() {
        robot?.close()
    }

    @Test
    fun `the first start fills a sample without a network`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.settle()
        val sample = AppRobot.samples().first()
        assertEquals(sample.prompt, robot.text(R.id.prompt))
        assertEquals(robot.activity.getString(R.string.payload_title, AppRobot.bytes(sample).size), robot.text(R.id.payload_title))

        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        val state = robot.app.fill.state.value
        val answer = robot.activity.findViewById<TextView>(R.id.answer)!!.text as Spanned
        assertEquals(state.answer.text, answer.toString())
        assertTrue("words, not fragments: $answer", answer.toString().split(" ").size > 10)
        val colours = answer.getSpans(0, answer.length, ForegroundColorSpan::class.java).map { it.foregroundColor }.toSet()
        assertEquals(setOf(robot.activity.getColor(R.color.cloud), robot.activity.getColor(R.color.edge)), colours)
        val stats = state.stats!!
        assertEquals(stats.tokens, state.answer.cloudTokens + state.answer.edgeTokens)
        assertEquals(stats.anchors, state.answer.cloudTokens)
        assertFalse(robot.isShown(R.id.fill_error_card))
        robot.screenshot("fill-light")
    }

    @Test
    fun `text arrives incrementally`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.tap(R.id.go)
        val seen = ArrayList<String>()
        while (seen.size < 3) robot.duringAnswer(seen::clear) { seen += robot.text(R.id.answer) }
        robot.waitFor(Phase.DONE)
        seen += robot.text(R.id.answer)
        for ((part, longer) in seen.zipWithNext()) assertTrue("'$part' begins '$longer'", longer.startsWith(part))
        assertTrue("${seen[0]} is not the whole answer", seen.first().length < seen.last().length)
    }

    @Test
    fun `rotating the phone neither stops nor repeats an answer`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.tap(R.id.go)
        val before = robot.activity
        robot.duringAnswer {
            val part = robot.text(R.id.answer)
            robot.rotate("land")
            assertNotEquals("a new activity", before, robot.activity)
            assertEquals(part, robot.text(R.id.answer))
        }
        robot.waitFor(Phase.DONE)
        assertEquals(robot.app.fill.state.value.answer.text, robot.text(R.id.answer))
        assertEquals(AppRobot.samples().first().prompt, robot.text(R.id.prompt))
        val whole = robot.text(R.id.answer)
        robot.screenshot("fill-landscape")
        robot.rotate("port")
        assertEquals(whole, robot.text(R.id.answer))
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        assertEquals("the same again", whole, robot.text(R.id.answer))
    }

    @Test
    fun `stop leaves the model ready`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.tap(R.id.go)
        robot.duringAnswer { robot.tap(R.id.go) }
        robot.waitFor(Phase.STOPPED)
        assertTrue("the partial text stays", robot.text(R.id.answer).isNotEmpty())
        assertEquals(robot.activity.getString(R.string.status_stopped), robot.text(R.id.status))
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        assertTrue(robot.text(R.id.answer).isNotEmpty())
    }

    @Test
    fun `without a payload the device generates the whole answer`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.settle()
        robot.tap(R.id.payload_clear)
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        assertEquals(0, robot.app.fill.state.value.answer.cloudTokens)
        assertTrue(robot.app.fill.state.value.answer.edgeTokens > 0)
    }

    @Test
    fun `a corrupted shared payload shows the reason for its refusal`() {
        val sample = AppRobot.samples().first()
        val changed = AppRobot.bytes(sample).also { it[it.size / 2] = (it[it.size / 2] + 1).toByte() }
        val robot = start(share(changed))
        robot.waitFor("the payload") { robot.app.fill.state.value.payload != null }
        robot.app.fill.setPrompt(sample.prompt)
        robot.settle()
        robot.tap(R.id.go)
        robot.waitFor(Phase.FAILED)
        assertTrue(robot.isShown(R.id.fill_error_card))
        assertEquals(robot.app.fill.state.value.error, robot.text(R.id.fill_error))
        assertTrue(robot.text(R.id.fill_error), robot.text(R.id.fill_error).length > 20)
        robot.screenshot("fill-error")
    }

    @Test
    fun `bytes that are no payload are refused immediately`() {
        for (bytes in listOf(ByteArray(0), ByteArray(3), ByteArray(100) { -1 }, ByteArray(1 shl 20))) {
            val robot = start(share(bytes))
            robot.waitFor(Phase.FAILED)
            assertTrue(robot.isShown(R.id.fill_error_card))
            assertEquals(null, robot.app.fill.state.value.payload)
            robot.close()
        }
        robot = null
    }

    @Test
    fun `other apps open only content, and only of the types that the manifest declares`() {
        val sample = AppRobot.samples().first()
        val own = File.createTempFile("own", ".payload").apply { writeBytes(AppRobot.bytes(sample)) }
        val type = "application/octet-stream"
        var refusal: Any? = null
        for (intent in listOf(
            Intent(Intent.ACTION_SEND).setType(type).putExtra(Intent.EXTRA_STREAM, Uri.fromFile(own)),
            Intent(Intent.ACTION_VIEW).setDataAndType(Uri.fromFile(own), type),
        )) {
            val robot = start(intent)
            robot.waitFor(Phase.FAILED)
            assertTrue(robot.text(R.id.fill_error), "content:" in robot.text(R.id.fill_error))
            assertNull(robot.app.fill.state.value.payload)
            refusal = robot.app.fill.state.value.error
            robot.close()
        }
        own.delete()
        for (intent in listOf(share(ByteArray(0)).setType("image/png"), share(ByteArray(0)).setAction(Intent.ACTION_EDIT))) {
            val robot = start(intent)
            robot.settle()
            assertNotEquals(Phase.READING, robot.app.fill.state.value.phase)
            assertEquals("neither opened nor refused", refusal, robot.app.fill.state.value.error)
            robot.close()
        }
        robot = null
    }

    @Test
    fun `doubt is shown with an answer whose payload carries it`() {
        val unsure = AppRobot.samples().last()
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        assertFalse("there is no answer yet", robot.isShown(R.id.doubt))
        val line = robot.activity.getString(R.string.doubt, Payloads.peek(AppRobot.bytes(unsure)).extras.doubt!!)

        robot.app.fill.openSample(unsure)
        robot.waitFor(Phase.IDLE)
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        assertTrue(robot.isShown(R.id.doubt))
        assertEquals(line, robot.text(R.id.doubt))
        val unknown = robot.app.fill.state.value.stats!!
        assertEquals("The cloud is not sure: ", lead(robot.activity, unknown.copy(notSure = true)))
        assertEquals("", lead(robot.activity, unknown))
        robot.screenshot("fill-doubt")
    }

    /** No text on the screen is cut off: buttons and labels grow with the font. */
    private fun assertReadable(view: View) {
        if (view is ViewGroup) for (at in 0 until view.childCount) assertReadable(view.getChildAt(at))
        val layout = (view as? TextView)?.takeIf { it.isShown && it !is EditText }?.layout ?: return
        for (line in 0 until layout.lineCount) assertEquals("${view.text}", 0, layout.getEllipsisCount(line))
        val room = view.height - view.compoundPaddingTop - view.compoundPaddingBottom
        assertTrue("${view.text}: ${layout.height} in $room", layout.height <= room + 1)
    }

    private fun everyScreen(name: String) {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        for ((tab, screen) in listOf(R.id.tab_fill to "fill", R.id.tab_models to "models", R.id.tab_bench to "bench")) {
            robot.tap(tab)
            assertReadable(robot.activity.window.decorView)
            robot.screenshot("$screen-$name")
        }
    }

    @Test
    fun `every screen is readable in a large font`() {
        RuntimeEnvironment.setFontScale(1.6f)
        everyScreen("large")
    }

    @Test
    @Config(qualifiers = "ar-ldrtl-w411dp-h891dp-port-notnight-xhdpi")
    fun `every screen works from right to left`() = everyScreen("rtl")

    @Test
    fun `models are checked, imported and refused`() {
        val robot = start()
        robot.tap(R.id.tab_models)
        robot.waitFor("the built-in model") { robot.app.models.state.value.installed.isNotEmpty() }
        robot.settle()
        val list = robot.activity.findViewById<LinearLayout>(R.id.model_list)!!
        assertEquals(1, list.childCount)
        val installed = robot.app.models.state.value.installed.single()
        assertTrue(installed.inUse && installed.builtIn && installed.problem == null)

        robot.tap(R.id.model_verify)
        robot.waitFor("the check") { robot.app.models.state.value.message != null }
        assertFalse(robot.text(R.id.models_message), robot.app.models.state.value.failed)
        robot.screenshot("models-light")

        fun import(change: (String, ByteArray) -> ByteArray) {
            val uri = Uri.parse("content://files/bundle.zip")
            shadowOf(robot.app.contentResolver).registerInputStream(uri, ByteArrayInputStream(zip(change)))
            robot.app.models.importZip(uri)
            robot.waitFor("the import") { robot.app.models.state.value.let { it.job == null && it.message != null } }
            robot.settle()
        }
        import { _, bytes -> bytes }
        assertFalse(robot.text(R.id.models_message), robot.app.models.state.value.failed)
        import { name, bytes -> if (name.endsWith("model.onnx.data")) bytes.also { it[9] = (it[9] + 1).toByte() } else bytes }
        assertTrue(robot.text(R.id.models_message), robot.app.models.state.value.failed)
        assertTrue(robot.text(R.id.models_message), "sha" in robot.text(R.id.models_message).lowercase())
        assertEquals("nothing half-installed", 1, robot.app.models.state.value.installed.size)

        robot.freeMemory(1000)
        robot.app.models.state.value.installed.single().let { robot.activity.chooseVariant(it) }
        (ShadowDialog.getLatestDialog() as AlertDialog).listView.performItemClick(null, 0, 0)
        robot.settle()
        val warning = shadowOf(ShadowDialog.getLatestDialog() as AlertDialog)
        assertEquals(robot.activity.getString(R.string.memory_title), warning.title)
        robot.freeMemory(3L shl 30)

        robot.tap(R.id.model_use)
        val dialog = ShadowDialog.getLatestDialog() as AlertDialog
        assertEquals(installed.info!!.variants.size, dialog.listView.adapter.count)
        val other = installed.info!!.variants.indexOfFirst { it.name != installed.variant }
        dialog.listView.performItemClick(null, other, other.toLong())
        robot.waitFor("the variant") { robot.app.models.state.value.installed.single().variant != installed.variant }
        robot.app.fill.openSample(AppRobot.samples().first())
        robot.waitFor(Phase.IDLE)
        robot.app.fill.start()
        robot.waitFor(Phase.DONE)
    }

    @Test
    fun `another model of the same name is replaced only where the user says so`() {
        val robot = start()
        robot.tap(R.id.tab_models)
        robot.waitFor("the built-in model") { robot.app.models.state.value.installed.isNotEmpty() }
        val manifest = File(robot.app.models.state.value.installed.single().folder, "bundle.json")
        val before = manifest.readText()
        val archive = zip { name, bytes -> if (name == "bundle.json") bytes + '\n'.code.toByte() else bytes }
        val uri = Uri.parse("content://files/other.zip")
        shadowOf(robot.app.contentResolver).registerInputStreamSupplier(uri) { ByteArrayInputStream(archive) }
        for ((button, after) in listOf(AlertDialog.BUTTON_NEGATIVE to before, AlertDialog.BUTTON_POSITIVE to before + "\n")) {
            robot.app.models.clearMessage()
            robot.app.models.importZip(uri)
            robot.waitFor("the question") { robot.app.models.state.value.let { it.replacement != null && it.job == null } }
            robot.settle()
            val found = robot.app.models.state.value.replacement!!.found
            val asked = shadowOf(ShadowDialog.getLatestDialog() as AlertDialog).message.toString()
            assertTrue(asked, found.installed in asked && found.offered in asked && found.installed != found.offered)
            assertEquals("nothing is replaced before the answer", before, manifest.readText())
            robot.tapDialog(button)
            robot.waitFor("the end") { robot.app.models.state.value.let { it.job == null && it.message != null } }
            assertFalse(robot.app.models.state.value.failed)
            assertEquals(after, manifest.readText())
        }
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
    fun `the benchmark shows and shares its figures`() {
        val robot = start()
        robot.tap(R.id.tab_bench)
        robot.tap(R.id.bench_run)
        robot.waitFor("the figures") { robot.app.bench.state.value.let { !it.running && it.points.isNotEmpty() } }
        robot.settle()
        val points = robot.app.bench.state.value.points
        assertEquals(1, points.first().tokens)
        assertTrue(points.all { it.milliseconds > 0 })
        robot.screenshot("bench-light")
        robot.tap(R.id.bench_share)
        val chooser = shadowOf(RuntimeEnvironment.getApplication()).nextStartedActivity
        @Suppress("DEPRECATION")
        val sent = chooser.getParcelableExtra<Intent>(Intent.EXTRA_INTENT)!!.getStringExtra(Intent.EXTRA_TEXT)!!
        assertTrue(sent, points.size + 4 == sent.lines().size)
    }

    @Test
    @Config(qualifiers = "w411dp-h891dp-port-night-xhdpi")
    fun `every screen has a dark theme`() {
        val robot = start()
        robot.waitFor("the first sample") { robot.app.fill.state.value.payload != null }
        robot.tap(R.id.go)
        robot.waitFor(Phase.DONE)
        robot.screenshot("fill-dark")
        robot.tap(R.id.tab_bench)
        robot.tap(R.id.bench_run)
        robot.waitFor("the figures") { robot.app.bench.state.value.let { !it.running && it.points.isNotEmpty() } }
        robot.screenshot("bench-dark")
        robot.tap(R.id.tab_models)
        robot.screenshot("models-dark")
    }
}
