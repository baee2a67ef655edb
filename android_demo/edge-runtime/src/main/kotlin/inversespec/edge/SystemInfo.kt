package inversespec.edge

import java.io.File
import java.io.IOException

/** Properties of the processor, from /sys. */
internal object SystemInfo {
    /**
     * Number of fast physical cores, or of logical ones where the system does not describe them: the number of
     * threads a model should use. The slow cores of a big.LITTLE processor delay the fast ones, and two threads on
     * one x86 core share its multipliers.
     */
    fun performanceCores(cpus: File = File("/sys/devices/system/cpu")): Int {
        val all = (0 until Runtime.getRuntime().availableProcessors()).map { File(cpus, "cpu$it") }
        // Some phones state a capacity, most a maximum frequency, each in its own unit.
        val speed = all.map { number(File(it, "cpu_capacity")) ?: number(File(it, "cpufreq/cpuinfo_max_freq")) ?: 0L }
        // Fast means within a fifth of the fastest: three-tier processors have a prime core and big ones.
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
