package inversespec.edge.text

import java.util.regex.Pattern
import java.util.regex.PatternSyntaxException

/**
 * The regular expression of a `tokenizer.json`, written for Oniguruma, as one that a desktop's and a phone's Java
 * understand alike.
 *
 * `\s` differs most: ASCII on the desktop, Unicode on Android, where the flag that would make them equal is not
 * known. So it is written out. Case-insensitive parts fold as Unicode does on all three.
 */
internal object SplitRegex {
    /** Unicode's White_Space, as the inside of a character class. */
    private const val SPACE = "\\x09-\\x0D\\x20\\x85\\xA0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000"

    /** Raises [PatternSyntaxException] for what is no regular expression. */
    fun compile(pattern: String): Pattern {
        val out = StringBuilder()
        var inClass = 0
        var at = 0
        while (at < pattern.length) {
            val char = pattern[at++]
            if (char == '\\' && at < pattern.length) {
                val escaped = pattern[at++]
                out.append(
                    when {
                        escaped == 's' && inClass > 0 -> SPACE
                        escaped == 's' -> "[$SPACE]"
                        escaped == 'S' -> "[^$SPACE]"
                        else -> "\\$escaped"
                    },
                )
                continue
            }
            if (char == '[') inClass++
            if (char == ']' && inClass > 0) inClass--
            out.append(char)
        }
        return Pattern.compile(out.toString(), Pattern.UNICODE_CASE)
    }
}
