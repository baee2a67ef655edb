package inversespec.edge.payload

import inversespec.edge.NotAPayloadException
import inversespec.edge.Payloads
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.Random

/** As tests/payload/test_foreign.py has it. */
internal class ForeignTest {
    private fun latin(text: String) = text.toByteArray(Charsets.ISO_8859_1)

    @Test
    fun `a file of another kind is no payload`() {
        val files = listOf(
            latin("\u0089PNG\r\n\u001a\n\u0000\u0000\u0000\rIHDR") to "a PNG image",
            latin("\u00ff\u00d8\u00ff\u00e0\u0000\u0010JFIF\u0000") to "a JPEG image",
            latin("GIF89a\u0001\u0000") to "a GIF image",
            latin("RIFF\u0024\n\u0000\u0000WEBPVP8 ") to "a WebP, WAV or AVI file",
            latin("PK\u0003\u0004\u0014\u0000\u0006\u0000") to "a ZIP archive",
            latin("BZh91AY&SY") to "a bzip2 archive",
            latin("\u00fd7zXZ\u0000") to "an XZ archive",
            latin("GGUF\u0003\u0000\u0000\u0000") to "a GGUF model",
            latin("\u007fELF\u0002\u0001\u0001\u0000") to "a program",
            "hello world".toByteArray() to "text",
            "Anchors are sent, and the device answers.\n".toByteArray() to "text",
            "Où est la gare ? Là-bas, à côté de l'église.\n".toByteArray() to "text",
            "{\"payload\": \"AAAA\"}".toByteArray() to "text",
            "<!doctype html>\n<title>Log in</title>".toByteArray() to "text",
            ByteArray(Payloads.MAX_BYTES) { 'a'.code.toByte() } to "text",
        )
        for ((data, kind) in files) {
            assertEquals(kind, foreign(data))
            val error = assertThrows(NotAPayloadException::class.java) { Payloads.peek(data) }
            assertTrue("found $kind; this is not a payload" in error.message!!)
        }
    }

    @Test
    fun `no payload is taken for another file`() {
        val random = Random(1)
        fun bytes(first: Int, size: Int) = byteArrayOf(first.toByte()) + ByteArray(size).also(random::nextBytes)
        val payloads = List(20_000) { bytes(0x50, 4 + random.nextInt(36)) } +
            List(20_000) { bytes(0x80 or random.nextInt(128), 30) } +
            // A prompt carried as text behind four printable bytes.
            (1..15).map { "QAb?".toByteArray() + byteArrayOf(it.toByte(), 24, 0) + "What is the capital of X?".toByteArray() }
        assertEquals(emptyList<ByteArray>(), payloads.filter { foreign(it) != null })
    }
}
