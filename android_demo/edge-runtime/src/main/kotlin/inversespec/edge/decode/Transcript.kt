package inversespec.edge.decode

import inversespec.edge.AnswerEvent
import inversespec.edge.Retract
import inversespec.edge.Source
import inversespec.edge.Token
import inversespec.edge.text.TextStream
import inversespec.edge.text.Tokenizer
import kotlin.math.exp

/**
 * The tokens of one answer so far, with their text; the last ones may be taken back. Reports both to [onEvent].
 *
 * @param stops the answer ends before the first of these in its text: tokens that may begin one are reported only once
 *   it is known that they do not.
 */
internal class Transcript(
    private val tokenizer: Tokenizer,
    private val stops: List<String> = emptyList(),
    private val onEvent: (AnswerEvent) -> Unit,
) {
    private val written = ArrayList<Token>()
    private var stream = TextStream(tokenizer)

    /** Number of the last tokens that have not been reported yet. */
    private var held = 0

    /** True where one of the stop sequences has ended the answer; further tokens are no part of it. */
    var ended = false
        private set

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
        if (ended) return
        val text = if (source == Source.PROMPT) "" else stream.push(id)
        val token = Token(id, position, source, logProb.toFloat(), text)
        if (source == Source.PROMPT) return onEvent(token)
        written.add(token)
        held++
        val open = written.takeLast(held).joinToString("") { it.text }
        val end = stops.map(open::indexOf).filter { it >= 0 }.minOrNull()
        if (end != null) return cut(end)
        val begun = open.indices.firstOrNull { at -> stops.any { it.startsWith(open.substring(at)) } } ?: open.length
        report(begun)
    }

    /** Reports the held tokens whose text ends within the first [size] characters of it. */
    private fun report(size: Int) {
        var left = size
        while (held > 0) {
            val token = written[written.size - held]
            left -= token.text.length
            if (left < 0) return
            held--
            onEvent(token)
        }
    }

    /** Ends the answer after [size] characters of the held tokens. */
    private fun cut(size: Int) {
        var left = size
        var last = written.size - held
        while (left > 0) {
            val token = written[last]
            written[last++] = token.copy(text = token.text.take(left))
            left -= token.text.length
        }
        held -= written.size - last
        written.subList(last, written.size).clear()
        report(size)
        ended = true
    }

    /** Takes back the tokens from a position on; nothing happens where there are none. */
    fun retract(position: Int) {
        if (position >= written.size && !ended) return
        val reported = written.size - held
        while (written.size > position) written.removeAt(written.size - 1)
        held = maxOf(0, written.size - reported)
        ended = false
        // The decoder may stand inside a character.
        stream = TextStream(tokenizer)
        for (token in written) stream.push(token.id)
        if (position < reported) onEvent(Retract(position))
    }

    /** Reports what is held. Returns U+FFFD where the answer ends inside a character, else empty. */
    fun finish(): String {
        report(Int.MAX_VALUE)
        return if (ended) "" else stream.flush()
    }
}
