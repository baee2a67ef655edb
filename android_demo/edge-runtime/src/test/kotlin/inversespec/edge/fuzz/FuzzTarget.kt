package inversespec.edge.fuzz

import inversespec.edge.EdgeException
import java.io.File
import java.lang.management.ManagementFactory

/**
 * What Jazzer calls, for the target that its arguments name. Writes the figures of a run at least once a second, as
 * `tests/fuzz/one_target.py` does; `python -m tests.fuzz` starts it and reads them.
 */
internal object FuzzTarget {
    private lateinit var target: Target
    private lateinit var file: File
    private val threads = ManagementFactory.getThreadMXBean()
    private val slowest = HashMap<Int, Pair<Long, Int>>()
    private var executions = 0L
    private var written = 0L
    private var again = 0
    private var began = 0L
    private const val MOST_BYTES = 64L shl 20
    private const val BALLAST_BYTES = 1 shl 20

    /** Of the heap, which Jazzer takes more of while it starts, all but [MOST_BYTES] is taken here. */
    private val ballast = ArrayList<ByteArray>()

    @JvmStatic
    fun fuzzerInitialize(arguments: Array<String>) {
        target = target(arguments[0])
        file = File(arguments[1])
        again = if (arguments[2] == "thrice") 2 else 0
        System.gc()
        val runtime = Runtime.getRuntime()
        val left = runtime.maxMemory() - runtime.totalMemory() + runtime.freeMemory()
        repeat(((left - MOST_BYTES) / BALLAST_BYTES).toInt()) { ballast.add(ByteArray(BALLAST_BYTES)) }
        began = peakBytes()
    }

    @JvmStatic
    fun fuzzerTestOneInput(data: ByteArray) {
        executions++
        val bits = Int.SIZE_BITS - data.size.countLeadingZeroBits()
        val known = slowest[bits]?.first ?: 0
        var took = nanoseconds(data)
        // One that is slow runs again, and the least of three counts. What it reaches then depends on the machine.
        repeat(again) { if (took > known) took = minOf(took, nanoseconds(data)) }
        if (took > known) slowest[bits] = took to data.size
        if (executions % 512 == 0L || System.nanoTime() - written > 1_000_000_000) {
            written = System.nanoTime()
            val rows = slowest.values.joinToString { (time, size) -> "[${time / 1e9}, $size]" }
            file.writeText("""{"executions": $executions, "grown": ${peakBytes() - began}, "slowest": [$rows]}""")
        }
    }

    private fun nanoseconds(data: ByteArray): Long {
        val before = threads.currentThreadCpuTime
        try {
            target.run(data)
        } catch (documented: EdgeException) {
            // As good as a result.
        }
        return threads.currentThreadCpuTime - before
    }

    /** Most bytes that this process has had in memory. */
    private fun peakBytes(): Long = File("/proc/self/status").readLines().first { it.startsWith("VmHWM") }
        .filter(Char::isDigit).toLong() shl 10
}
