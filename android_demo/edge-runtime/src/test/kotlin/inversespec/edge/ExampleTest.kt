package inversespec.edge

import inversespec.edge.payload.hexToBytes
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

/** An answer as a Flow, for apps that have coroutines; README.md shows it. */
private fun EdgeModel.tokens(payload: ByteArray?, prompt: String?): Flow<Token> = callbackFlow {
    val cancel = Cancel()
    launch(Dispatchers.IO) {
        fill(payload, prompt, cancel) { trySendBlocking(it) }
        close()
    }
    awaitClose { cancel.cancel() }
}

/** What the documentation shows, run. */
internal class ExampleTest {
    private val row = expected["fills"].rows().first { it["payload"] != null && it["prompt"] == null }

    private val bundle = File(row.text("bundle"))

    @Test
    fun `the example of EdgeModel`(@TempDir temp: File) {
        val file = File(temp, "payload.bin").apply { writeBytes(row.text("payload").hexToBytes()) }
        val text = StringBuilder()
        EdgeModel.open(bundle, Options(row.text("variant"))).use { model ->
            val stats = model.fill(file.readBytes(), prompt = null) { token -> text.append(token.text) }
            text.append(stats.tail)
            assertEquals(row.int("passes"), stats.passes)
        }
        assertEquals(row["text"], text.toString())
        val header = Payloads.peek(file.readBytes())
        assertEquals(Bundles.inspect(bundle).contractTag, header.tag)
    }

    @Test
    fun `an answer as a flow, whole, cut short, and refused`() = runBlocking {
        EdgeModel.open(bundle, Options(row.text("variant"), threads = 1)).use { model ->
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
