package inversespec.edge.payload

import inversespec.edge.*
import inversespec.edge.payload.codecs.Compression

/**
 * Parses the optional fields of a payload: a byte of flags, then the fields that are present, in the order of the
 * flags.
 */
internal object ExtrasReader {
    private const val MAX_PROMPT_BYTES = 1 shl 16
    private const val MAX_STEPS = 1 shl 20
    private const val PROMPT = 1
    private const val STEPS = 4
    private const val CONFIDENCE = 8

    fun read(reader: ByteReader): Extras {
        val at = reader.at
        val flags = reader.byte("flags of the optional fields")
        if (flags == 0 || flags and (PROMPT or STEPS or CONFIDENCE).inv() != 0) {
            throw MalformedPayloadException(
                "flags of the optional fields: expected some of 1, 4 and 8 at byte $at, found $flags",
            )
        }
        val prompt = if (flags and PROMPT != 0) prompt(reader) else null
        var step = 0
        var total = 0
        if (flags and STEPS != 0) {
            step = reader.varint("step", MAX_STEPS)
            total = reader.varint("total steps", MAX_STEPS)
            if (step == 0 && total == 0) {
                throw MalformedPayloadException("steps: expected a step or a total above 0, found 0 of 0")
            }
        }
        val confidence = if (flags and CONFIDENCE != 0) confidence(reader) else emptyList()
        return Extras(prompt, step, total, confidence)
    }

    private fun prompt(reader: ByteReader): String {
        val size = reader.varint("prompt length", MAX_PROMPT_BYTES)
        val packed = reader.varint("packed prompt length", MAX_PROMPT_BYTES)
        val text = if (packed == 0) {
            reader.take(size, "prompt")
        } else {
            Compression.inflate(reader.take(packed, "prompt"), size, "prompt")
        }
        if (text.size != size) {
            throw MalformedPayloadException("prompt: expected $size bytes after unpacking, found ${text.size}")
        }
        return strictUtf8(text) { at ->
            throw MalformedPayloadException("prompt: expected UTF-8, found another byte at $at")
        }
    }

    /** Four 2-bit levels per byte, the first in the lowest bits. */
    private fun confidence(reader: ByteReader): List<Int> {
        val count = reader.varint("number of confidences", MAX_CANVAS)
        if (count == 0) {
            throw MalformedPayloadException("number of confidences: expected at least 1, found 0")
        }
        val bytes = reader.take((count + 3) / 4, "confidences")
        val levels = List(4 * bytes.size) { bytes[it / 4].toInt() shr 2 * (it % 4) and 3 }
        if (levels.drop(count).any { it != 0 }) {
            throw MalformedPayloadException("confidences: expected zero bits after the last one, found others")
        }
        return levels.take(count)
    }
}
