package inversespec.edge.fuzz

import inversespec.edge.*
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.TestFactory
import java.io.File

/** Every target reads its corpus, in which every input that once was a finding is; `make fuzz` looks for more. */
internal class FuzzTargetsTest {
    @TestFactory
    fun `nothing but documented errors`(): List<DynamicTest> = TARGETS.filter { it != "service_answer" }.map { name ->
        dynamicTest(name) {
            val target = target(name)
            var read = 0
            for (file in File(repo, "tests/fuzz/corpus/$name").listFiles().orEmpty()) {
                val data = file.readBytes()
                try {
                    target.run(data)
                    read++
                } catch (documented: EdgeException) {
                    // As good as a result.
                } catch (error: Throwable) {
                    throw AssertionError("${file.name}: ${data.toHex()}", error)
                }
            }
            assertTrue(read > 0, "expected an input that is read to its end")
        }
    }
}
