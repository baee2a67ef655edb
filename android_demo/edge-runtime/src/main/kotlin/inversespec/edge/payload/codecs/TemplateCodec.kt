package inversespec.edge.payload.codecs

import inversespec.edge.*
import inversespec.edge.payload.ByteReader

/** Codec template-gzip (paper section 6.3): the anchors as compressed text, with one NUL byte per gap position. */
internal object TemplateCodec {
    /** Maximum size of a decompressed template, in bytes. */
    private const val MAX_BYTES = 1 shl 15

    fun decode(body: ByteArray, tokens: TokenBytes): DecodedBody {
        val reader = ByteReader(body)
        val canvas = reader.varint("canvas", MAX_CANVAS)
        val length = reader.varint("length", MAX_CANVAS + 1)
        val found = HashMap<Int, Int>()
        var patch = -1
        repeat(reader.varint("number of patches", MAX_CANVAS)) {
            patch += 1 + reader.varint("patch distance", MAX_CANVAS)
            found[patch] = reader.varint("patch id", Int.MAX_VALUE)
        }
        val text = Compression.gunzip(reader.rest(), MAX_BYTES, "template")
        var position = 0
        var start = 0
        while (start <= text.size) {
            var end = start
            while (end < text.size && text[end] != 0.toByte()) end++
            if (end > start) {
                for (id in tokens.encode(utf8(text.copyOfRange(start, end)))) {
                    if (position >= canvas) {
                        throw AnchorRangeException("template: expected at most $canvas positions, found more")
                    }
                    if (found.put(position, id) != null) {
                        throw MalformedPayloadException(
                            "patch at position $position: expected a gap there, found text",
                        )
                    }
                    position++
                }
            }
            if (end < text.size) position++
            start = end + 1
        }
        val last = found.keys.maxOrNull() ?: -1
        if (last + 1 != position) {
            throw MalformedPayloadException("template: expected its end at the last anchor, found it elsewhere")
        }
        return DecodedBody(found, canvas, if (length > 0) length - 1 else null)
    }

    private fun utf8(segment: ByteArray): String = strictUtf8(segment) { at ->
        throw MalformedPayloadException("template: expected UTF-8, found another byte at $at")
    }
}
