package inversespec.edge.payload

// Bytes that are no payload: files of other kinds, told by how they begin, and text. The rules are those of
// payload/foreign.py: one in 10^9 payloads at most would pass for one of these.

private val BEGINNINGS = mapOf(
    "a PNG image" to "\\x89PNG\\r\\n\\x1a\\n",
    "a JPEG image" to "\\xff\\xd8\\xff[\\xc0-\\xfe]",
    "a GIF image" to "GIF8[79]a",
    "a WebP, WAV or AVI file" to "RIFF.{4}(WEBP|WAVE|AVI )",
    "a ZIP archive" to "PK\\x03\\x04[\\x0a\\x14\\x2d\\x33\\x3f]\\x00", // with the version that unpacks it
    "a bzip2 archive" to "BZh[1-9]1AY&SY",
    "an XZ archive" to "\\xfd7zXZ\\x00",
    "a GGUF model" to "GGUF[\\x01-\\x03]\\x00\\x00\\x00",
    "a program" to "\\x7fELF[\\x01\\x02][\\x01\\x02]",
).mapValues { Regex("\\A" + it.value, RegexOption.DOT_MATCHES_ALL) }

// Text may begin as a payload does (@ to _): then the more of it. No byte of the first eight is a control character, as
// the flags of optional fields are, so a payload that carries its prompt as text is none.
private val TEXT = Regex(
    "(?=[^@-_]|.{24})[^\\x00-\\x1f\\x7f]{8}[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]*",
    RegexOption.DOT_MATCHES_ALL,
)

/** What these bytes are, with its article; null for what may be a payload, of this or a later version. */
internal fun foreign(data: ByteArray): String? {
    val bytes = String(data, Charsets.ISO_8859_1) // a character per byte
    BEGINNINGS.entries.firstOrNull { it.value.containsMatchIn(bytes) }?.let { return it.key }
    return if (TEXT.matches(bytes) && isUtf8(data)) "text" else null
}

private fun isUtf8(data: ByteArray): Boolean = try {
    Charsets.UTF_8.newDecoder().decode(java.nio.ByteBuffer.wrap(data)) // reports what is malformed
    true
} catch (error: java.nio.charset.CharacterCodingException) {
    false
}
