package inversespec.edge.payload.codecs

import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import java.util.zip.CRC32
import java.util.zip.DataFormatException
import java.util.zip.Inflater

/** Bounded gzip and zstd decompression: output never exceeds the size that the caller allows. */
internal object Compression {
    private const val MAX_WINDOW = 1L shl 20

    /** Decompresses exactly one gzip member to at most [most] bytes; [field] names the data in errors. */
    fun gzipDecompress(data: ByteArray, most: Int, field: String): ByteArray {
        fun refused(found: String): Nothing =
            throw MalformedPayloadException("$field: expected exactly one whole gzip stream, found $found")
        val start = gzipDataStart(data) ?: refused("no gzip header")
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
                throw OversizedPayloadException("$field: expected at most $most bytes after unpacking, found more")
            }
            // The trailer: CRC-32 and size, both little-endian.
            if (inflater.remaining != 8) refused("${inflater.remaining} bytes after it")
            val trailer = ZstdBytes(data, data.size - 8)
            val crc = CRC32().apply { update(out, 0, size) }
            if (trailer.integer(4) != crc.value || trailer.integer(4) != size.toLong()) refused("another checksum")
            return out.copyOf(size)
        } catch (error: DataFormatException) {
            refused(error.message ?: "broken data")
        } finally {
            inflater.end()
        }
    }

    /** Offset of the compressed data of a gzip member; null where there is no valid header. */
    private fun gzipDataStart(data: ByteArray): Int? {
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

    /** Decompresses exactly one zstd frame to at most [most] bytes; [field] names the data in errors. */
    fun zstdDecompress(data: ByteArray, most: Int, field: String): ByteArray {
        try {
            val frame = ZstdFrame(data)
            val size = frame.contentSize
            if (size == null || frame.dictionary != 0L) {
                throw MalformedPayloadException("$field: expected a zstd frame with its size and no dictionary")
            }
            if (size !in 0..most || frame.windowSize !in 0..MAX_WINDOW) {
                throw OversizedPayloadException(
                    "$field: expected at most $most bytes after unpacking, found $size claimed",
                )
            }
            return frame.decompress()
        } catch (error: ZstdException) {
            throw MalformedPayloadException("$field: expected exactly one whole zstd frame, found ${error.message}")
        }
    }
}
