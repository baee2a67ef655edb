package inversespec.edge.text

import java.util.regex.Pattern
import java.util.regex.PatternSyntaxException

/**
 * Translates the regular expression of a `tokenizer.json` (Oniguruma) to one with equal meaning in desktop Java and on
 * Android.
 *
 * The main difference is `\s`: ASCII on the desktop, Unicode on Android, which lacks the flag that would align them.
 * It is therefore expanded. Case-insensitive parts use Unicode case folding on all three.
 */
internal object SplitRegex {
    /** Unicode White_Space, as the content of a character class. */
    private const val SPACE = "\\x09-\\x0D\\x20\\x85\\xA0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000"

    /** Compiles a pattern; throws [PatternSyntaxException] where it is invalid. */
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
