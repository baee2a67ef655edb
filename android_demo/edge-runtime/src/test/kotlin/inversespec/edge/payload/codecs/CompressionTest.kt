package inversespec.edge.payload.codecs

import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import inversespec.edge.PayloadException
import inversespec.edge.expected
import inversespec.edge.hexToBytes
import inversespec.edge.rows
import inversespec.edge.text
import inversespec.edge.toHex
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.io.ByteArrayOutputStream
import java.util.Random
import java.util.zip.GZIPOutputStream

internal class CompressionTest {
    private fun unzstd(data: ByteArray): ByteArray? = try {
        Compression.zstdDecompress(data, 1 shl 17, "frame")
    } catch (error: PayloadException) {
        null
    }

    @Test
    fun `zstd frames decompress as in Python`() {
        val frames = expected["frames"].rows()
        for (row in frames) {
            val found = unzstd(row.text("frame").hexToBytes())?.toHex()
            // A corrupted frame may be refused here and accepted by Python, whose decoders do not check every bit.
            if (found != null || row["whole"] == true) {
                assertEquals(row["content"], found) { "frame ${row.text("frame").take(200)}" }
            }
        }
        assertTrue(frames.count { it["content"] != null } > 100)
        assertTrue(frames.count { it["content"] == null } > 50)
    }

    @Test
    fun `corrupted frames throw nothing but refusals`() {
        val random = Random(5)
        val frames = expected["frames"].rows().map { it.text("frame") }
        val pool = frames.filter { it.length < 3000 }.map { it.hexToBytes() }
        repeat(3000) {
            val data = pool[random.nextInt(pool.size)].clone()
            repeat(1 + random.nextInt(4)) { data[random.nextInt(data.size)] = random.nextInt().toByte() }
            unzstd(data)
            unzstd(data.copyOf(random.nextInt(data.size + 1)))
        }
    }

    @Test
    fun `a frame with an excessive stated size is refused before decompression`() {
        val claim = "28b52ffda0ffffff0f01000000".hexToBytes() // 256 MB in a single segment
        assertThrows(OversizedPayloadException::class.java) { Compression.zstdDecompress(claim, 1 shl 16, "prompt") }
    }

    private fun gzip(content: ByteArray): ByteArray =
        ByteArrayOutputStream().also { out -> GZIPOutputStream(out).use { it.write(content) } }.toByteArray()

    @Test
    fun `gzip decompresses exactly one whole stream`() {
        val content = ByteArray(5000) { (it * it).toByte() }
        val packed = gzip(content)
        assertArrayEquals(content, Compression.gzipDecompress(packed, 5000, "x"))
        assertThrows(OversizedPayloadException::class.java) { Compression.gzipDecompress(packed, 4999, "x") }
        for (size in packed.indices) {
            assertThrows(MalformedPayloadException::class.java) { Compression.gzipDecompress(packed.copyOf(size), 5000, "x") }
        }
        assertThrows(MalformedPayloadException::class.java) { Compression.gzipDecompress(packed + packed, 5000, "x") }
        val broken = packed.clone().also { it[packed.size - 6] = (it[packed.size - 6] + 1).toByte() }
        assertThrows(MalformedPayloadException::class.java) { Compression.gzipDecompress(broken, 5000, "x") }
        assertArrayEquals(ByteArray(0), Compression.gzipDecompress(gzip(ByteArray(0)), 10, "x"))
    }
}
