package inversespec.app

import inversespec.edge.FillStats
import inversespec.edge.Header
import inversespec.edge.Source
import inversespec.edge.Token

/** Progress of an answer. */
enum class Phase { IDLE, READING, LOADING, FILLING, DONE, STOPPED, FAILED }

/** A payload that was loaded: its bytes, its header, and a description of where it came from. */
class LoadedPayload(val bytes: ByteArray, val header: Header, val origin: String)

/** A run of text from one source: from the end of the run before, or 0, to before character [end]. */
data class TextRun(val source: Source, val end: Int)

/**
 * An answer while it is generated: its tokens, its text and the source of each part.
 *
 * @property takenBack text that a payload has just contradicted; shown for a moment.
 */
data class AnswerText(
    val text: String = "",
    val runs: List<TextRun> = emptyList(),
    val tokens: List<Token> = emptyList(),
    val takenBack: String = "",
) {
    val cloudTokens: Int get() = tokens.count { it.source == Source.ANCHOR }
    val edgeTokens: Int get() = tokens.size - cloudTokens

    operator fun plus(token: Token): AnswerText = copy(tokens = tokens + token).append(token.text, token.source)

    /** This answer without the tokens at a position and after it. */
    fun retract(position: Int): AnswerText {
        val kept = tokens.take(position).fold(AnswerText(), AnswerText::plus)
        return kept.copy(takenBack = text.substring(kept.text.length))
    }

    /** This answer with text that belongs to no further token. */
    fun append(piece: String, source: Source): AnswerText {
        if (piece.isEmpty()) return this
        val extended = text + piece
        val kept = if (runs.lastOrNull()?.source == source) runs.dropLast(1) else runs
        return copy(text = extended, runs = kept + TextRun(source, extended.length))
    }
}

/**
 * State of the Fill screen.
 *
 * @property doubt how unsure the cloud was of its tokens in the finished answer; null where the payload does not say.
 * @property promptVersion counts how often the prompt was set other than by typing: the screen updates its text
 *   field when it changes.
 */
data class FillUiState(
    val phase: Phase = Phase.IDLE,
    val prompt: String = "",
    val promptVersion: Int = 0,
    val payload: LoadedPayload? = null,
    val answer: AnswerText = AnswerText(),
    val stats: FillStats? = null,
    val doubt: Double? = null,
    val error: String? = null,
) {
    val busy get() = phase == Phase.LOADING || phase == Phase.FILLING
}
