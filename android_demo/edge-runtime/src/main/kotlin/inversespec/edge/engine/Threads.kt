package inversespec.edge.engine

import java.io.File
import java.io.IOException

/**
 * How many threads a model should use on this device: one for each of its fast cores. The slow cores of a
 * big.LITTLE processor hold the fast ones up, and two threads on one x86 core share what that core can multiply.
 */
internal object Threads {
    /** Number of fast physical cores; where that is not told, of logical ones. */
    fun performanceCores(cpus: File = File("/sys/devices/system/cpu")): Int {
        val all = (0 until Runtime.getRuntime().availableProcessors()).map { File(cpus, "cpu$it") }
        // Some phones tell the capacity, most the highest frequency, both in units of their own.
        val speed = all.map { number(File(it, "cpu_capacity")) ?: number(File(it, "cpufreq/cpuinfo_max_freq")) ?: 0L }
        // Within a fifth of the fastest counts as fast: three-tier phones have a prime core and big ones.
        val fast = all.indices.filter { speed[it] * 5 >= speed.max() * 4 }
        return fast.map { text(File(all[it], "topology/thread_siblings_list")) ?: "$it" }.toSet().size
    }

    private fun number(file: File): Long? = text(file)?.toLongOrNull()

    private fun text(file: File): String? = try {
        file.readText().trim().ifEmpty { null }
    } catch (error: IOException) {
        null
    } catch (error: SecurityException) {
        null
    }
}
