package inversespec.app

import android.app.AlertDialog
import android.app.job.JobInfo
import android.app.job.JobParameters
import android.app.job.JobScheduler
import android.net.NetworkCapabilities
import android.view.View
import android.view.ViewGroup
import android.widget.CheckBox
import android.widget.EditText
import com.sun.net.httpserver.HttpExchange
import com.sun.net.httpserver.HttpServer
import java.io.File
import java.io.IOException
import java.net.InetAddress
import java.net.InetSocketAddress
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit
import org.junit.After
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.Robolectric
import org.robolectric.RobolectricTestRunner
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Config
import org.robolectric.annotation.GraphicsMode
import org.robolectric.annotation.LooperMode
import org.robolectric.shadows.ShadowDialog

/** Downloads of the shipped bundle from a server on this machine, in the real job and on the real screen. */
@RunWith(RobolectricTestRunner::class)
@Config(sdk = [35], application = App::class, qualifiers = "w411dp-h891dp-port-notnight-xhdpi")
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@LooperMode(LooperMode.Mode.PAUSED)
class DownloadTest {
    private val bundle = File(System.getProperty("bundle"))
    private val robot = AppRobot()
    private val scheduler = robot.app.getSystemService(JobScheduler::class.java)!!

    /** What was asked for: the file, its first byte, and how many bytes of it were sent. */
    private data class Served(val name: String, val start: Int, val sent: Int)

    private val served = CopyOnWriteArrayList<Served>()
    private val server = HttpServer.create(InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0)
    private val released = CountDownLatch(1)

    /** The file of which a response stops in the middle until the test ends; null for none. */
    @Volatile
    private var stuck: String? = null

    @Volatile
    private var status = 206

    /** What the server has for `bundle.json`; null for the bundle's own. */
    @Volatile
    private var manifest: ByteArray? = null

    private val address get() = "http://localhost:${server.address.port}/models/tiny"

    init {
        server.executor = Executors.newCachedThreadPool { Thread(it).apply { isDaemon = true } }
        server.createContext("/models/tiny/") { exchange ->
            try {
                respond(exchange)
            } catch (gone: IOException) {
                // The app has left.
            }
            exchange.close()
        }
        server.start()
        robot.tap(R.id.tab_models)
        robot.waitFor("the built-in model") { robot.app.models.state.value.installed.isNotEmpty() }
    }

    @After
    fun close() {
        released.countDown()
        robot.close()
        server.stop(0)
    }

    private fun respond(exchange: HttpExchange) {
        val name = exchange.requestURI.path.removePrefix("/models/tiny/")
        val data = manifest?.takeIf { name == "bundle.json" } ?: File(bundle, name).readBytes()
        val range = Regex("bytes=(\\d+)-(\\d+)").find(exchange.requestHeaders.getFirst("Range"))!!.groupValues
        val start = range[1].toInt()
        val end = minOf(range[2].toInt() + 1, data.size)
        if (status != 206) return exchange.sendResponseHeaders(status, -1)
        exchange.responseHeaders["Content-Range"] = "bytes $start-${end - 1}/${data.size}"
        exchange.sendResponseHeaders(206, (end - start).toLong())
        val middle = if (name == stuck) (start + end) / 2 else end
        served += Served(name, start, middle - start)
        exchange.responseBody.write(data, start, middle - start)
        exchange.responseBody.flush()
        if (middle == end) return
        released.await(60, TimeUnit.SECONDS)
        throw IOException("stuck")
    }

    /** Asks for a download as a user does. */
    private fun ask(address: String, unmetered: Boolean) {
        robot.tap(R.id.download)
        val frame = ShadowDialog.getLatestDialog().findViewById<ViewGroup>(android.R.id.custom)!!
        val fields = frame.getChildAt(0) as ViewGroup
        (fields.getChildAt(0) as EditText).setText(address)
        (fields.getChildAt(1) as CheckBox).isChecked = unmetered
        robot.tapDialog(AlertDialog.BUTTON_POSITIVE)
    }

    private fun job(): JobInfo? = scheduler.getPendingJob(DownloadViewModel.JOB)

    private fun newService() = Robolectric.buildService(DownloadService::class.java).create().get()

    /** Stands for the system's, which apps cannot make. */
    private fun parameters(): JobParameters {
        val constructor = JobParameters::class.java.declaredConstructors.maxByOrNull { it.parameterCount }!!
        constructor.isAccessible = true
        val arguments = constructor.parameterTypes.map { type ->
            when (type) {
                Int::class.javaPrimitiveType -> DownloadViewModel.JOB
                Boolean::class.javaPrimitiveType -> false
                else -> null
            }
        }
        return constructor.newInstance(*arguments.toTypedArray()) as JobParameters
    }

    private fun deleteInstalled() {
        robot.app.models.root.listFiles()!!.filter { !it.name.startsWith(".") }.forEach { it.deleteRecursively() }
    }

    private fun partial(): Long = robot.app.models.root.walk().filter { it.name.endsWith(".part") }.sumOf { it.length() }

    @Test
    fun `a download that is stopped by the system goes on where it stood, also in another process`() {
        val weights = bundle.walk().filter { it.isFile }.maxByOrNull { it.length() }!!
        stuck = weights.relativeTo(bundle).path
        deleteInstalled()
        ask(address, unmetered = false)
        assertTrue(robot.text(R.id.download_title), "Waiting" in robot.text(R.id.download_title))
        assertFalse(robot.activity.findViewById<View>(R.id.download)!!.isEnabled)

        val service = newService()
        assertTrue(service.onStartJob(parameters()))
        robot.waitFor("half of the weights") { partial() == weights.length() / 2 }
        robot.settle()
        assertTrue(robot.text(R.id.download_title), " of " in robot.text(R.id.download_title))
        robot.screenshot("models-download")
        assertTrue("the system has to run it again", service.onStopJob(parameters()))
        released.countDown() // a desktop's connection waits for its read, where a phone's is closed
        robot.settle()
        assertTrue(robot.text(R.id.download_title), "Waiting" in robot.text(R.id.download_title))
        assertFalse("ended by the system, not by itself", shadowOf(service).isJobFinished)
        assertEquals("nothing half installed", emptyList<String>(), installed())

        // What another process finds: the job once, or, after a restart of the phone, none.
        val later = DownloadViewModel(robot.app, robot.app.models) { it.run() }
        later.start()
        assertEquals(address, later.state.value!!.address)
        assertEquals(1, scheduler.allPendingJobs.size)
        scheduler.cancelAll()
        later.start()
        assertEquals(1, scheduler.allPendingJobs.size)

        stuck = null
        val before = served.toList()
        val again = newService()
        again.onStartJob(parameters())
        robot.waitFor("the model") { shadowOf(again).isJobFinished }
        robot.waitFor("its list") { robot.app.models.state.value.message != null }
        assertFalse(shadowOf(again).isRescheduleNeeded)
        assertFalse(robot.text(R.id.models_message), robot.app.models.state.value.failed)
        assertNull(robot.app.downloads.state.value)
        robot.settle()
        assertFalse(robot.isShown(R.id.download_card))
        assertEquals(1, installed().size)
        val requested = served.drop(before.size).filter { it.name != "bundle.json" }
        val weightsName = weights.relativeTo(bundle).path
        assertEquals(weights.length().toInt() / 2, requested.single { it.name == weightsName }.start)
        val whole = before.map { it.name } - weightsName
        assertTrue("$requested", requested.none { it.name in whole })
        val fresh = DownloadViewModel(robot.app, robot.app.models) { it.run() }
        fresh.start()
        assertNull("nothing is left to go on with", fresh.state.value)
    }

    private fun installed() = robot.app.models.root.list()!!.filter { !it.startsWith(".") }

    @Test
    fun `it waits for an unmetered network only if asked`() {
        for (unmetered in listOf(true, false)) {
            ask(address, unmetered)
            val asked = job()!!
            assertTrue(asked.requiredNetwork!!.hasCapability(NetworkCapabilities.NET_CAPABILITY_INTERNET))
            val needed = asked.requiredNetwork!!.hasCapability(NetworkCapabilities.NET_CAPABILITY_NOT_METERED)
            assertEquals(unmetered, needed)
            assertEquals(unmetered, "Wi-Fi" in robot.text(R.id.download_title))
            robot.tap(R.id.download_cancel)
            assertNull(job())
            assertFalse(robot.isShown(R.id.download_card))
        }
        assertEquals("nothing is sent before the job runs", emptyList<Served>(), served.toList())
    }

    @Test
    fun `another model of the same name is downloaded only where the user says so`() {
        val installed = File(robot.app.models.root, "tiny-qwen/bundle.json")
        val before = installed.readText()
        manifest = (before + "\n").toByteArray()
        for (button in listOf(AlertDialog.BUTTON_NEGATIVE, AlertDialog.BUTTON_POSITIVE)) {
            served.clear()
            ask(address, unmetered = false)
            val first = newService()
            first.onStartJob(parameters())
            robot.waitFor("the question") { robot.app.models.state.value.replacement != null }
            robot.waitFor("the end of the job") { shadowOf(first).isJobFinished }
            robot.settle()
            assertEquals(listOf("bundle.json"), served.map { it.name })
            robot.tapDialog(button)
        }
        assertEquals(before, installed.readText())
        val again = newService()
        again.onStartJob(parameters())
        robot.waitFor("the model") { shadowOf(again).isJobFinished }
        assertEquals(before + "\n", installed.readText())
    }

    @Test
    fun `cancelled, it deletes what has arrived`() {
        val weights = bundle.walk().filter { it.isFile }.maxByOrNull { it.length() }!!
        stuck = weights.relativeTo(bundle).path
        ask(address, unmetered = false)
        val service = newService()
        service.onStartJob(parameters())
        robot.waitFor("a part") { partial() > 0 }
        val before = installed()
        robot.tap(R.id.download_cancel)
        assertFalse("nothing to run again", service.onStopJob(parameters()))
        robot.waitFor("the deletion") { robot.app.models.root.list()!!.none { it.startsWith(".fetch") } }
        assertEquals(before, installed())
        assertEquals(robot.activity.getString(R.string.message_cancelled), robot.text(R.id.models_message))
        assertNull(job())
    }

    @Test
    fun `an overloaded server is tried again by the system, and a refusal ends it`() {
        ask(address, unmetered = false)
        status = 503
        val service = newService()
        service.onStartJob(parameters())
        robot.waitFor("the end of the attempts") { shadowOf(service).isJobFinished }
        robot.settle()
        assertTrue(shadowOf(service).isRescheduleNeeded)
        assertTrue(robot.text(R.id.download_title), "503" in robot.text(R.id.download_title))

        status = 404
        val refused = newService()
        refused.onStartJob(parameters())
        robot.waitFor("the refusal") { shadowOf(refused).isJobFinished }
        robot.waitFor("the message") { robot.app.models.state.value.message != null }
        robot.settle()
        assertFalse(shadowOf(refused).isRescheduleNeeded)
        assertTrue(robot.text(R.id.models_message), "404" in robot.text(R.id.models_message))
        assertNull(robot.app.downloads.state.value)
        assertTrue(robot.activity.findViewById<View>(R.id.download)!!.isEnabled)
    }

    @Test
    fun `an address is checked before anything is scheduled`() {
        for (address in listOf("", "models", "ftp://host/tiny", "http://example.com/tiny")) {
            ask(address, unmetered = true)
            robot.waitFor("the message") { robot.app.models.state.value.failed }
            robot.settle()
            assertTrue(robot.text(R.id.models_message), "https" in robot.text(R.id.models_message))
            assertNull(job())
        }
    }
}
