package inversespec.edge.text

import inversespec.edge.strictUtf8

/** Invalid JSON; the message states the location. */
internal class JsonException(message: String) : Exception(message)

/**
 * JSON parser, as Android and desktop Java have none in common.
 *
 * Objects become maps in document order, arrays lists, integers Long, other numbers Double.
 */
internal class Json private constructor(private val text: String) {
    private var at = 0

    private fun document(): Any? {
        val value = value(0)
        space()
        if (at < text.length) fail("the end")
        return value
    }

    private fun value(depth: Int): Any? {
        if (depth > MAX_DEPTH) throw JsonException("expected at most $MAX_DEPTH levels, found more at $at")
        space()
        return when (peek()) {
            '{' -> readObject(depth)
            '[' -> readArray(depth)
            '"' -> readString()
            't' -> word("true", true)
            'f' -> word("false", false)
            'n' -> word("null", null)
            else -> readNumber()
        }
    }

    private fun readObject(depth: Int): Map<String, Any?> {
        val result = LinkedHashMap<String, Any?>()
        at++
        space()
        if (peek() == '}') {
            at++
            return result
        }
        while (true) {
            space()
            if (peek() != '"') fail("a name in quotes")
            val name = readString()
            space()
            if (peek() != ':') fail("':'")
            at++
            result[name] = value(depth + 1)
            if (ends('}')) return result
        }
    }

    private fun readArray(depth: Int): List<Any?> {
        val result = ArrayList<Any?>()
        at++
        space()
        if (peek() == ']') {
            at++
            return result
        }
        while (true) {
            result.add(value(depth + 1))
            if (ends(']')) return result
        }
    }

    /** Consumes a closing bracket (true) or a comma (false). */
    private fun ends(close: Char): Boolean {
        space()
        val found = peek()
        if (found != close && found != ',') fail("',' or '$close'")
        at++
        return found == close
    }

    private fun readString(): String {
        val start = ++at
        while (at < text.length && text[at] != '"' && text[at] != '\\' && text[at] >= ' ') at++
        if (peek() == '"') return text.substring(start, at++)
        val out = StringBuilder().append(text, start, at)
        while (true) {
            val found = peek()
            when {
                found == '"' -> {
                    at++
                    return out.toString()
                }
                found == '\\' -> out.append(escape())
                found < ' ' -> fail("no control character in a string")
                else -> {
                    out.append(found)
                    at++
                }
            }
        }
    }

    private fun escape(): Char {
        at++
        val found = peek()
        at++
        return when (found) {
            '"', '\\', '/' -> found
            'b' -> '\b'
            'f' -> '\u000C'
            'n' -> '\n'
            'r' -> '\r'
            't' -> '\t'
            'u' -> {
                val digits = text.substring(at, minOf(at + 4, text.length))
                if (digits.length < 4 || !digits.all { Character.digit(it, 16) >= 0 }) fail("4 hex digits")
                at += 4
                digits.toInt(16).toChar()
            }
            else -> {
                at--
                fail("an escape")
            }
        }
    }

    private fun readNumber(): Any {
        val found = NUMBER.find(text, at)
        if (found == null || found.range.first != at) fail("a value")
        at = found.range.last + 1
        return if (found.groupValues[1].isEmpty()) {
            found.value.toLongOrNull()
                ?: throw JsonException("expected a number of 64 bits, found ${found.value.take(40)}")
        } else {
            found.value.toDouble()
        }
    }

    private fun word(name: String, value: Any?): Any? {
        if (!text.startsWith(name, at)) fail("a value")
        at += name.length
        return value
    }

    private fun space() {
        while (at < text.length && text[at] in " \t\n\r") at++
    }

    private fun peek(): Char = if (at < text.length) text[at] else fail("more")

    private fun fail(expected: String): Nothing {
        val found = if (at < text.length) "'${text[at]}'" else "the end"
        throw JsonException("expected $expected at character $at, found $found")
    }

    companion object {
        private const val MAX_DEPTH = 64
        private val NUMBER = Regex("-?(?:0|[1-9][0-9]*)((?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")

        /** Parses a JSON text in UTF-8; throws [JsonException]. */
        fun parse(data: ByteArray): Any? = parse(
            strictUtf8(data) { throw JsonException("expected UTF-8, found another byte at $it") },
        )

        fun parse(text: String): Any? = Json(text).document()

        /** A string as ASCII JSON, in the form that contract identities are computed over. */
        fun quote(text: String): String {
            val out = StringBuilder("\"")
            for (char in text) {
                when (char) {
                    '"' -> out.append("\\\"")
                    '\\' -> out.append("\\\\")
                    '\n' -> out.append("\\n")
                    '\r' -> out.append("\\r")
                    '\t' -> out.append("\\t")
                    '\b' -> out.append("\\b")
                    '\u000C' -> out.append("\\f")
                    in ' '..'~' -> out.append(char)
                    else -> out.append("\\u").append(char.code.toString(16).padStart(4, '0'))
                }
            }
            return out.append('"').toString()
        }
    }
}
