package inversespec.edge.payload

import inversespec.edge.AnchorRangeException
import inversespec.edge.MAX_CANVAS
import inversespec.edge.MalformedPayloadException
import inversespec.edge.TokenBytes

/** What every codec's body holds: anchors by position, canvas, length where known. */
internal class Shape(val found: Map<Int, Int>, val canvas: Int, val length: Int?)

/** The paper's text template (section 6.3): the anchors as text, one NUL byte for every gap, compressed. */
internal object Template {
    /** Longest template that is unpacked, in bytes. */
    private const val MAX_BYTES = 1 shl 15

    fun decode(body: ByteArray, tokens: TokenBytes, unsqueeze: (ByteArray, Int, String) -> ByteArray): Shape {
        val reader = Reader(body)
        val canvas = reader.varint("canvas", MAX_CANVAS)
        val length = reader.varint("length", MAX_CANVAS + 1)
        val found = HashMap<Int, Int>()
        var patch = -1
        repeat(reader.varint("number of patches", MAX_CANVAS)) {
            patch += 1 + reader.varint("patch distance", MAX_CANVAS)
            found[patch] = reader.varint("patch id", Int.MAX_VALUE)
        }
        val text = unsqueeze(reader.rest(), MAX_BYTES, "template")
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
        return Shape(found, canvas, if (length > 0) length - 1 else null)
    }

    private fun utf8(segment: ByteArray): String = strictUtf8(segment) { at ->
        throw MalformedPayloadException("template: expected UTF-8, found another byte at $at")
    }
}
