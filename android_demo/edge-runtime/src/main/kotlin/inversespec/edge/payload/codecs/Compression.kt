package inversespec.edge.payload.codecs

import inversespec.edge.MalformedPayloadException
import inversespec.edge.OversizedPayloadException
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.zip.CRC32
import java.util.zip.DataFormatException
import java.util.zip.Inflater

/** Bounded decompression of gzip and deflate: output never exceeds the size that the caller allows. */
internal object Compression {
    /** A gzip member without optional fields: bytes before and after its deflate stream. */
    private const val GZIP_HEADER = 10
    private const val GZIP_TRAILER = 8

    /** Decompresses exactly one gzip member to at most [most] bytes; [field] names the data in errors. */
    fun gunzip(data: ByteArray, most: Int, field: String): ByteArray {
        fun refused(found: String): Nothing =
            throw MalformedPayloadException("$field: expected a whole gzip stream without options, found $found")
        val start = data.take(4).map { it.toInt() and 0xFF }
        if (data.size < GZIP_HEADER + GZIP_TRAILER || start != listOf(0x1F, 0x8B, 8, 0)) refused("no gzip header")
        val out = unpack(data, GZIP_HEADER, GZIP_TRAILER, most, field)
        val trailer = ByteBuffer.wrap(data, data.size - GZIP_TRAILER, GZIP_TRAILER).order(ByteOrder.LITTLE_ENDIAN)
        val crc = CRC32().apply { update(out) }
        if (trailer.int != crc.value.toInt() || trailer.int != out.size) refused("another checksum")
        return out
    }

    /** Decompresses exactly one deflate stream. An Inflater asks for a byte behind it. */
    fun inflate(data: ByteArray, most: Int, field: String): ByteArray = unpack(data + 0, 0, 1, most, field)

    /** The stream from [start] on, which ends [tail] bytes before the end of [data]. */
    private fun unpack(data: ByteArray, start: Int, tail: Int, most: Int, field: String): ByteArray {
        fun refused(found: String): Nothing =
            throw MalformedPayloadException("$field: expected exactly one whole deflate stream, found $found")
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
            if (inflater.remaining != tail) refused("${inflater.remaining - tail} bytes after it")
            return out.copyOf(size)
        } catch (error: DataFormatException) {
            refused(error.message ?: "broken data")
        } finally {
            inflater.end()
        }
    }
}
