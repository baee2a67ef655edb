package inversespec.edge

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File

internal class SystemInfoTest {
    @Test
    fun `fast physical cores are counted`(@TempDir temp: File) {
        assertTrue(SystemInfo.performanceCores() in 1..Runtime.getRuntime().availableProcessors())
        val count = Runtime.getRuntime().availableProcessors()
        for (cpu in 0 until count) {
            File(temp, "cpu$cpu/cpufreq").mkdirs()
            File(temp, "cpu$cpu/cpufreq/cpuinfo_max_freq").writeText(if (cpu == 0) "2800000\n" else "1800000\n")
        }
        assertEquals(1, SystemInfo.performanceCores(temp))
        for (cpu in 0 until count) {
            File(temp, "cpu$cpu/topology").mkdirs()
            File(temp, "cpu$cpu/topology/thread_siblings_list").writeText("0-${count - 1}\n")
            File(temp, "cpu$cpu/cpu_capacity").writeText("1024\n")
        }
        assertEquals(1, SystemInfo.performanceCores(temp))
    }
}
