package inversespec.edge.client

import inversespec.edge.repo
import inversespec.edge.text.Json
import org.junit.jupiter.api.Assumptions.assumeTrue
import java.io.File
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import kotlin.concurrent.thread

/** The service of the Python package, `cloud_anchor.serve`, with the shipped pair, in a process of its own. */
internal class PythonService(vararg options: String) : AutoCloseable {
    private val process: Process
    private val ready = CountDownLatch(1)
    private val log = StringBuilder()

    lateinit var url: String
        private set

    init {
        process = python("-m", "cloud_anchor.serve", "--model", "tiny", "--port", "0", "--threads", "1", *options)
            .redirectErrorStream(true).start()
        thread(isDaemon = true) {
            process.inputStream.bufferedReader().forEachLine { line ->
                synchronized(log) { log.appendLine(line) }
                Regex("at (http://[0-9.:]+)").find(line)?.let {
                    url = it.groupValues[1]
                    ready.countDown()
                }
            }
        }
        check(ready.await(300, TimeUnit.SECONDS)) { "the service did not start: $log" }
    }

    /** Waits until requests are admitted. */
    fun awaitReady(): PythonService {
        val end = System.nanoTime() + 300_000_000_000
        while (System.nanoTime() < end && process.isAlive) {
            val connection = java.net.URL("$url/readyz").openConnection() as java.net.HttpURLConnection
            try {
                if (connection.responseCode == 200) return this
            } catch (early: java.io.IOException) {
                // Not listening yet.
            } finally {
                connection.disconnect()
            }
            Thread.sleep(200)
        }
        error("the service is not ready: $log")
    }

    fun kill() {
        process.destroyForcibly().waitFor()
    }

    /** Stops or continues the process, as the system's scheduler would: its sockets stay open. */
    fun signal(name: String) {
        val pid = Process::class.java.getMethod("pid").invoke(process) // from Java 9 on
        ProcessBuilder("kill", "-$name", pid.toString()).start().waitFor()
    }

    override fun close() = kill()

    companion object {
        private val python: String? = System.getProperty("python")?.ifEmpty { null }

        /** A command of the Python packages. Tests that use them are skipped where no interpreter is given. */
        fun python(vararg command: String): ProcessBuilder {
            assumeTrue(python != null, "give the interpreter that has the packages: -Dpython=PATH")
            return ProcessBuilder(python, *command).directory(repo).apply {
                environment()["PYTHONPATH"] = repo.path
                environment()["OMP_NUM_THREADS"] = "1"
            }
        }

        /** What `edge_runtime.fill --json` prints. */
        fun fill(vararg options: String): Map<*, *> {
            val errors = File.createTempFile("fill", ".log")
            val process = python("-m", "edge_runtime.fill", "--json", "--threads", "1", *options)
                .redirectError(errors).start()
            val out = process.inputStream.readBytes()
            check(process.waitFor() == 0) { errors.readText() }
            return Json.parse(out) as Map<*, *>
        }
    }
}
