package inversespec.edge

import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** A few thousand inputs of the fuzzer; `make fuzz-kotlin` runs a million. */
internal class PayloadFuzzTest {
    @Test
    fun `hostile bytes are refused or decoded, and nothing else`() {
        val fuzz = PayloadFuzz(7)
        repeat(4000) {
            val data = fuzz.input()
            try {
                fuzz.run(data)
            } catch (error: RuntimeException) {
                throw AssertionError(data.toHex(), error)
            }
        }
        assertTrue(fuzz.decoded > 100)
    }
}
