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

/** An answer while it is generated: its text, the source of each part, and the number of tokens per source. */
data class AnswerText(
    val text: String = "",
    val runs: List<TextRun> = emptyList(),
    val cloudTokens: Int = 0,
    val edgeTokens: Int = 0,
) {
    operator fun plus(token: Token): AnswerText {
        val counted =
            if (token.source == Source.ANCHOR) copy(cloudTokens = cloudTokens + 1) else copy(edgeTokens = edgeTokens + 1)
        return counted.append(token.text, token.source)
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
    val error: String? = null,
) {
    val busy get() = phase == Phase.LOADING || phase == Phase.FILLING
}
