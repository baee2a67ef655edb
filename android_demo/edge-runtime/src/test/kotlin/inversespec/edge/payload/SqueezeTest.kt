package inversespec.edge.payload

import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import inversespec.edge.PayloadException
import inversespec.edge.expected
import inversespec.edge.rows
import inversespec.edge.text
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.io.ByteArrayOutputStream
import java.util.Random
import java.util.zip.GZIPOutputStream

internal class SqueezeTest {
    private fun unzstd(data: ByteArray): ByteArray? = try {
        Squeeze.unzstd(data, 1 shl 17, "frame")
    } catch (error: PayloadException) {
        null
    }

    @Test
    fun `zstd frames unpack to what Python unpacks them to`() {
        val frames = expected["frames"].rows()
        for (row in frames) {
            val found = unzstd(row.text("frame").hexToBytes())?.toHex()
            // A broken one may be refused where Python does not notice: not all its decoders look at every last bit.
            if (found != null || row["whole"] == true) {
                assertEquals(row["content"], found) { "frame ${row.text("frame").take(200)}" }
            }
        }
        assertTrue(frames.count { it["content"] != null } > 100)
        assertTrue(frames.count { it["content"] == null } > 50)
    }

    @Test
    fun `broken frames are refused and nothing else happens`() {
        val luck = Random(5)
        val frames = expected["frames"].rows().map { it.text("frame") }
        val pool = frames.filter { it.length < 3000 }.map { it.hexToBytes() }
        repeat(3000) {
            val data = pool[luck.nextInt(pool.size)].clone()
            repeat(1 + luck.nextInt(4)) { data[luck.nextInt(data.size)] = luck.nextInt().toByte() }
            unzstd(data)
            unzstd(data.copyOf(luck.nextInt(data.size + 1)))
        }
    }

    @Test
    fun `a frame that claims too much is refused before it is unpacked`() {
        val claim = "28b52ffda0ffffff0f01000000".hexToBytes() // 256 MB in a single segment
        assertThrows(OversizedPayloadException::class.java) { Squeeze.unzstd(claim, 1 shl 16, "prompt") }
    }

    private fun gzip(content: ByteArray): ByteArray =
        ByteArrayOutputStream().also { out -> GZIPOutputStream(out).use { it.write(content) } }.toByteArray()

    @Test
    fun `gzip comes back, exactly one whole stream of it`() {
        val content = ByteArray(5000) { (it * it).toByte() }
        val packed = gzip(content)
        assertArrayEquals(content, Squeeze.ungzip(packed, 5000, "x"))
        assertThrows(OversizedPayloadException::class.java) { Squeeze.ungzip(packed, 4999, "x") }
        for (size in packed.indices) {
            assertThrows(MalformedPayloadException::class.java) { Squeeze.ungzip(packed.copyOf(size), 5000, "x") }
        }
        assertThrows(MalformedPayloadException::class.java) { Squeeze.ungzip(packed + packed, 5000, "x") }
        val broken = packed.clone().also { it[packed.size - 6] = (it[packed.size - 6] + 1).toByte() }
        assertThrows(MalformedPayloadException::class.java) { Squeeze.ungzip(broken, 5000, "x") }
        assertArrayEquals(ByteArray(0), Squeeze.ungzip(gzip(ByteArray(0)), 10, "x"))
    }
}
