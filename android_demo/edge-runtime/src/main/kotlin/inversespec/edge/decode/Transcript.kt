package inversespec.edge.decode

import inversespec.edge.*
import inversespec.edge.text.TextStream
import inversespec.edge.text.Tokenizer
import kotlin.math.exp

/** The tokens of one answer so far, with their text; the last ones may be taken back. Reports both to [onEvent]. */
internal class Transcript(private val tokenizer: Tokenizer, private val onEvent: (AnswerEvent) -> Unit) {
    private val written = ArrayList<Token>()
    private var stream = TextStream(tokenizer)

    /** The answer's tokens, without those of the prompt. */
    val tokens: List<Token> get() = written

    val ids: IntArray get() = IntArray(written.size) { written[it].id }

    /** Geometric mean of the probabilities of the anchors; null where none was scored. */
    val agreement: Double?
        get() {
            val scores = written.filter { it.source == Source.ANCHOR && !it.logprob.isNaN() }
            return if (scores.isEmpty()) null else exp(scores.sumOf { it.logprob.toDouble() } / scores.size)
        }

    fun add(id: Int, position: Int, source: Source, logProb: Double) {
        val text = if (source == Source.PROMPT) "" else stream.push(id)
        val token = Token(id, position, source, logProb.toFloat(), text)
        if (source != Source.PROMPT) written.add(token)
        onEvent(token)
    }

    /** Takes back the tokens from a position on; nothing happens where there are none. */
    fun retract(position: Int) {
        if (position >= written.size) return
        written.subList(position, written.size).clear()
        // The decoder may stand inside a character.
        stream = TextStream(tokenizer)
        for (token in written) stream.push(token.id)
        onEvent(Retract(position))
    }

    /** U+FFFD where the answer ends inside a character, else empty. */
    fun finish(): String = stream.flush()
}
