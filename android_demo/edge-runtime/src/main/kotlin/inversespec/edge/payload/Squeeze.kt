package inversespec.edge.payload

import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import java.util.zip.CRC32
import java.util.zip.DataFormatException
import java.util.zip.Inflater

/** General-purpose compression, bounded: nothing unpacks to more than it was told to expect. */
internal object Squeeze {
    private const val MAX_WINDOW = 1L shl 20

    /** Unpacks one gzip member of at most [most] bytes. */
    fun ungzip(data: ByteArray, most: Int, what: String): ByteArray {
        fun refused(found: String): Nothing =
            throw MalformedPayloadException("$what: expected exactly one whole gzip stream, found $found")
        val start = gzipHeader(data) ?: refused("no gzip header")
        val inflater = Inflater(true)
        try {
            inflater.setInput(data, start, data.size - start)
            val out = ByteArray(most + 1)
            var size = 0
            while (!inflater.finished() && size < out.size) {
                val count = inflater.inflate(out, size, out.size - size)
                if (count == 0 && !inflater.finished()) refused("a part")
                size += count
            }
            if (size > most) {
                throw OversizedPayloadException("$what: expected at most $most bytes after unpacking, found more")
            }
            // After the data its CRC-32 and its size, both little-endian.
            if (inflater.remaining != 8) refused("${inflater.remaining} bytes after it")
            val tail = ZstdBytes(data, data.size - 8)
            val crc = CRC32().apply { update(out, 0, size) }
            if (tail.number(4) != crc.value || tail.number(4) != size.toLong()) refused("another checksum")
            return out.copyOf(size)
        } catch (error: DataFormatException) {
            refused(error.message ?: "broken data")
        } finally {
            inflater.end()
        }
    }

    /** Where the compressed data of a gzip member begins; null where there is no header. */
    private fun gzipHeader(data: ByteArray): Int? {
        fun byte(at: Int) = if (at < data.size) data[at].toInt() and 0xFF else -1
        if (byte(0) != 0x1F || byte(1) != 0x8B || byte(2) != 8 || byte(3) !in 0..31) return null
        val flags = byte(3)
        var at = 10
        if (flags and 4 != 0) at += 2 + maxOf(byte(at), 0) + (maxOf(byte(at + 1), 0) shl 8)
        for (flag in intArrayOf(8, 16)) {
            if (flags and flag == 0) continue
            while (byte(at) > 0) at++
            at++
        }
        if (flags and 2 != 0) at += 2
        return at.takeIf { it < data.size }
    }

    /** Unpacks one zstd frame of at most [most] bytes. */
    fun unzstd(data: ByteArray, most: Int, what: String): ByteArray {
        try {
            val frame = Zstd(data)
            val size = frame.contentSize
            if (size == null || frame.dictionary != 0L) {
                throw MalformedPayloadException("$what: expected a zstd frame with its size and no dictionary")
            }
            if (size !in 0..most || frame.windowSize !in 0..MAX_WINDOW) {
                throw OversizedPayloadException(
                    "$what: expected at most $most bytes after unpacking, found $size claimed",
                )
            }
            return frame.unpack()
        } catch (error: ZstdException) {
            throw MalformedPayloadException("$what: expected exactly one whole zstd frame, found ${error.message}")
        }
    }
}
