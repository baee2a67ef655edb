package inversespec.edge

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.channels.awaitClose
import kotlinx.coroutines.channels.trySendBlocking
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.callbackFlow
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File

/** An answer as a Flow, for apps with coroutines, as in README.md. */
private fun EdgeRuntime.tokens(payload: ByteArray?, prompt: String?): Flow<Token> = callbackFlow {
    val cancel = CancelSignal()
    launch(Dispatchers.IO) {
        fill(payload, prompt, cancel) { trySendBlocking(it) }
        close()
    }
    awaitClose { cancel.cancel() }
}

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

    @Test
    fun `an answer as a flow, whole, truncated, and refused`() = runBlocking {
        EdgeRuntime.open(bundle, RuntimeOptions(row.text("variant"), threads = 1)).use { model ->
            val payload = row.text("payload").hexToBytes()
            assertEquals(row["ids"].ints(), model.tokens(payload, null).toList().map { it.id })
            assertEquals(row["ids"].ints().take(2), model.tokens(payload, null).take(2).toList().map { it.id })
            assertThrows(TruncatedPayloadException::class.java) {
                runBlocking { model.tokens(ByteArray(1), null).toList() }
            }
            assertEquals(row["ids"].ints(), model.tokens(payload, null).toList().map { it.id })
        }
    }
}
