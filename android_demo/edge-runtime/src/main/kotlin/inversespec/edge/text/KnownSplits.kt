package inversespec.edge.text

/**
 * Where vocabularies split text before merging, as it stands in `tokenizer.json`: the expressions that are run, and no
 * others. A bundle may be a stranger's, and `(a+)+$` on some letters never ends. The same list as
 * `edge_runtime/text/splits.py`, of which the vectors are.
 */
internal object KnownSplits {
    private const val SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    private const val UPPER = """[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"""
    private const val LOWER = """[\p{Ll}\p{Lm}\p{Lo}\p{M}]"""
    private const val MARKS = """ ?[^\s\p{L}\p{N}]+[\r\n]*"""
    private const val SPACES = """|\s*[\r\n]+|\s+(?!\S)|\s+"""
    private const val FIRST = """[^\r\n\p{L}\p{N}]?"""

    val EXPRESSIONS = setOf(
        """\p{N}""",
        """'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
        """$SUFFIX|$FIRST\p{L}+|\p{N}|$MARKS$SPACES""",
        """$SUFFIX|$FIRST[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*$SPACES""",
        """$SUFFIX|$FIRST\p{L}+|\p{N}{1,3}|$MARKS$SPACES""",
        cased("$SUFFIX?", """\p{N}{1,3}"""),
        cased("", """\p{N}"""),
        """$SUFFIX|$FIRST\p{L}+| ?\p{N}{1,2}|$MARKS$SPACES""",
    )

    /** Words of capitals and small letters, with what follows an apostrophe. */
    private fun cased(suffix: String, numbers: String) = "$FIRST$UPPER*$LOWER+$suffix|$FIRST$UPPER+$LOWER*$suffix|" +
        """$numbers| ?[^\s\p{L}\p{N}]+[\r\n/]*$SPACES"""
}
