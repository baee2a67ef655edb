package inversespec.edge.bundle

import inversespec.edge.*
import inversespec.edge.client.RangeRequest
import inversespec.edge.client.ScriptedServer
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File
import java.io.IOException
import java.io.OutputStream
import java.util.Random
import java.util.concurrent.CancellationException
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean

/** Downloads of the shipped bundle from a server on this machine. */
internal class FetchTest {
    @TempDir
    lateinit var temp: File
    private val into by lazy { File(temp, "bundles") }
    private val total = Bundle.open(shippedBundle).manifest.records(null).values.sumOf { it.size }

    private fun visible() = into.listFiles().orEmpty().filter { !it.name.startsWith(".") }

    private fun assertInstalled() {
        val folder = visible().single()
        assertEquals("tiny-qwen", folder.name)
        Bundles.verify(folder)
        assertEquals(emptyList<String>(), folder.walk().filter { it.name.endsWith(".part") }.map { it.name }.toList())
        assertEquals(1, into.listFiles()!!.size) // the staging folder is gone
    }

    @Test
    fun `killed at 20 random points, no more than one chunk is fetched twice each time`() {
        val random = Random(4)
        var killAt = Long.MAX_VALUE
        lateinit var process: Process
        val server = FileServer(shippedBundle) { sent ->
            if (sent >= killAt) process.destroyForcibly().waitFor()
        }
        val classPath = listOf(FetchMain::class.java, Bundles::class.java, Unit::class.java)
            .joinToString(File.pathSeparator) { File(it.protectionDomain.codeSource.location.toURI()).path }
        val command = listOf(
            File(System.getProperty("java.home"), "bin/java").path, "-Xmx64m", "-XX:TieredStopAtLevel=1",
            "-cp", classPath, FetchMain::class.java.name, server.url, into.path, "$CHUNK",
        )
        server.use {
            var before = 0L
            var killed = 0
            while (true) {
                // The last of 20 points is in the last twentieth of the bundle.
                killAt = if (killed < KILLS) before + 1 + random.nextInt((total / KILLS).toInt()) else Long.MAX_VALUE
                val log = File(temp, "log")
                process = ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log).start()
                assertTrue(process.waitFor(120, TimeUnit.SECONDS))
                if (process.exitValue() == 0) break
                assertTrue(killed++ < KILLS) { log.readText() }
                assertEquals(emptyList<File>(), visible()) // nothing half installed
                before = killAt
            }
            assertEquals(KILLS, killed)
        }
        assertInstalled()
        val files = server.served.filter { it.first != MANIFEST }
        val twice = files.groupBy { it.first }.values.sumOf { ranges ->
            val asked = ranges.sumOf { it.third - it.second }
            asked - ranges.maxOf { it.third }
        }
        assertTrue(files.all { it.third - it.second <= CHUNK })
        assertTrue(twice <= KILLS * CHUNK) { "$twice bytes were asked for twice" }
        // Every file that was complete before a kill was never asked for again, and chunks go on where they stood.
        for (ranges in files.groupBy { it.first }.values) {
            for ((one, next) in ranges.zip(ranges.drop(1))) {
                assertTrue(next.second > one.second || next.second >= one.third - CHUNK) { "$one $next" }
            }
        }
        println("fetched in ${KILLS + 1} processes: $twice of $total bytes asked for twice")
    }

    @Test
    fun `connections that break are taken up again, and progress ends at the total`() {
        var broken = 0
        val server = FileServer(shippedBundle) { sent ->
            if (sent > (broken + 1) * 400_000L) {
                broken++
                throw IOException("broken")
            }
        }
        val seen = ArrayList<Long>()
        server.use { Bundles.fetch(it.url, into) { done, of -> if (of == total) seen.add(done) } }
        assertTrue(broken >= 3)
        assertEquals(total, seen.last())
        assertEquals(seen.sorted(), seen)
        assertInstalled()
    }

    @Test
    fun `a server without ranges works too, also after a break`() {
        var broken = false
        val server = FileServer(shippedBundle, ranges = false) { sent ->
            if (sent > 1_000_000 && !broken) {
                broken = true
                throw IOException("broken")
            }
        }
        server.use { Bundles.fetch("${it.url}/bundle.json", into) }
        assertInstalled()
    }

    @Test
    fun `a cancelled download goes on later, or is discarded`() {
        val cancel = CancelSignal()
        FileServer(shippedBundle).use { server ->
            assertThrows(CancellationException::class.java) {
                Bundles.fetch(server.url, into, cancel = cancel) { done, _ -> if (done > 500_000) cancel.cancel() }
            }
            assertEquals(emptyList<File>(), visible())
            val asked = server.served.filter { it.first != MANIFEST }.sumOf { it.third - it.second }
            Bundles.fetch(server.url, into)
            val all = server.served.filter { it.first != MANIFEST }.sumOf { it.third - it.second }
            assertTrue(all - asked < total)
            assertInstalled()
            val again = CancelSignal()
            assertThrows(CancellationException::class.java) {
                Bundles.fetch(server.url, into, cancel = again) { _, _ -> again.cancel() }
            }
            assertEquals(2, into.listFiles()!!.size)
            Bundles.discardFetch(server.url, into)
            assertInstalled()
        }
    }

    @Test
    fun `what the server has changed or lost is refused, and nothing is installed`() {
        val copy = File(temp, "copy").also { shippedBundle.copyRecursively(it) }
        FileServer(copy).use { server ->
            val weights = File(copy, "fp32/model.onnx.data")
            weights.writeBytes(weights.readBytes().also { it[1000]++ })
            val error = assertThrows(BundleHashException::class.java) { Bundles.fetch(server.url, into) }
            assertTrue("fp32/model.onnx.data" in error.message!!)
            weights.writeBytes(weights.readBytes().copyOf(1000))
            assertThrows(CloudRefusedException::class.java) { Bundles.fetch(server.url, into) }
            weights.delete()
            assertThrows(CloudRefusedException::class.java) { Bundles.fetch(server.url, into) }
            assertEquals(emptyList<File>(), visible())
            // Repaired on the server: only what is missing is asked for.
            val asked = server.served.size
            File(shippedBundle, "fp32/model.onnx.data").copyTo(weights)
            Bundles.fetch(server.url, into)
            val names = server.served.drop(asked).map { it.first }.toSet()
            assertFalse("tokenizer.json" in names)
            assertInstalled()
        }
    }

    @Test
    fun `a changed manifest begins anew, and limits and addresses are checked`() {
        val copy = File(temp, "copy").also { shippedBundle.copyRecursively(it) }
        FileServer(copy).use { server ->
            val cancel = CancelSignal()
            assertThrows(CancellationException::class.java) {
                Bundles.fetch(server.url, into, cancel = cancel) { done, _ -> if (done > 300_000) cancel.cancel() }
            }
            File(copy, MANIFEST).appendText("\n")
            Bundles.fetch(server.url, into)
            assertInstalled()
            assertThrows(BundleFileException::class.java) { Bundles.fetch(server.url, into, maxBytes = 1000) }
            assertThrows(CloudRefusedException::class.java) { Bundles.fetch(server.url + "x", into) }
        }
        assertThrows(CloudRefusedException::class.java) { Bundles.fetch("http://example.com/x", into) }
        assertThrows(UsageException::class.java) { Bundles.fetch("no address", into) }
    }

    private fun fetcher(url: String, patienceMs: Long = 60_000, free: () -> Long = { Long.MAX_VALUE }): BundleFetcher {
        val cancel = CancelSignal()
        val request = RangeRequest(cancel, patienceMs, pause = {})
        val storage = Storage("fetch", into, free)
        return BundleFetcher(url, into, total, false, cancel, { _, _ -> }, request, CHUNK, storage)
    }

    @Test
    fun `a server that drips ends the download, which goes on where it stood`() {
        val drips = AtomicBoolean(true)
        lateinit var server: FileServer
        server = FileServer(shippedBundle) { sent ->
            if (drips.get() && sent > 300_000) {
                server.piece = 1
                Thread.sleep(20)
            }
        }
        server.use {
            val began = System.nanoTime()
            val error = assertThrows(CloudUnavailableException::class.java) { fetcher(server.url, 500).fetch() }
            assertTrue("What has arrived is kept" in error.message!!, error.message)
            assertTrue(System.nanoTime() - began < 20e9)
            assertEquals(emptyList<File>(), visible())
            val asked = server.served.size
            drips.set(false)
            server.piece = 8192
            Bundles.fetch(server.url, into)
            assertTrue(server.served.drop(asked).filter { it.first != MANIFEST }.sumOf { it.third - it.second } < total - 200_000)
            assertInstalled()
        }
    }

    @Test
    fun `a head that drips is not waited for`() {
        val drip: (OutputStream) -> Unit = { out ->
            out.write("HTTP/1.1 206 Partial Content\r\nX-Slow: ".toByteArray())
            repeat(500) {
                out.write('x'.code)
                out.flush()
                Thread.sleep(20)
            }
        }
        ScriptedServer(drip).use { server ->
            val began = System.nanoTime()
            assertThrows(CloudUnavailableException::class.java) { fetcher(server.url, 500).fetch() }
            assertTrue(System.nanoTime() - began < 8e9)
        }
    }

    @Test
    fun `storage that fills while it downloads ends the download, which goes on later`() {
        FileServer(shippedBundle).use { server ->
            assertThrows(BundleFileException::class.java) { fetcher(server.url) { total }.fetch() }
            var left = total + Storage.SPARE_BYTES
            val error = assertThrows(BundleFileException::class.java) {
                fetcher(server.url) { left.also { left -= 100_000 } }.fetch()
            }
            assertTrue("of free storage" in error.message!!, error.message)
            assertTrue(into.walk().filter { it.isFile && it.name != MANIFEST }.sumOf { it.length() } > 0)
            Bundles.fetch(server.url, into)
            assertInstalled()
        }
    }

    @Test
    fun `another bundle of the same name is replaced only where that is asked for, and nothing is downloaded before`() {
        Bundles.importFiles(into) { File(shippedBundle, it).takeIf(File::isFile)?.inputStream() }
        val copy = File(temp, "copy").also { shippedBundle.copyRecursively(it) }
        File(copy, MANIFEST).appendText("\n")
        FileServer(copy).use { server ->
            assertThrows(BundleExistsException::class.java) { Bundles.fetch(server.url, into) }
            assertEquals(listOf(MANIFEST), server.served.map { it.first })
            Bundles.fetch(server.url, into, replace = true)
        }
        assertInstalled()
        assertEquals(File(copy, MANIFEST).readText(), File(visible().single(), MANIFEST).readText())
    }

    private companion object {
        const val KILLS = 20
        const val CHUNK = 64L shl 10
    }
}
