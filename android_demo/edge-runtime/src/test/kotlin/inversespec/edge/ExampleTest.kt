package inversespec.edge

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File

/** The examples of the documentation. */
internal class ExampleTest {
    private val row = expected["fills"].rows().first { it["payload"] != null && it["prompt"] == null }

    private val bundle = File(row.text("bundle"))

    @Test
    fun `the example of EdgeRuntime`(@TempDir temp: File) {
        val file = File(temp, "payload.bin").apply { writeBytes(row.text("payload").hexToBytes()) }
        val text = StringBuilder()
        EdgeRuntime.open(bundle, RuntimeOptions(row.text("variant"))).use { model ->
            val stats = model.fill(file.readBytes(), prompt = null) { token -> text.append(token.text) }
            text.append(stats.tail)
            assertEquals(row.int("passes"), stats.passes)
        }
        assertEquals(row["text"], text.toString())
        val header = Payloads.peek(file.readBytes())
        assertEquals(Bundles.inspect(bundle).contractTag, header.tag)
    }
}
