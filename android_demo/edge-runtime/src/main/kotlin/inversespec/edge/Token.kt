package inversespec.edge

/** Origin of a token: the prompt, the cloud's anchors, or the edge model. */
enum class Source { PROMPT, ANCHOR, FILL }

/**
 * One token of the stream.
 *
 * @property position 0-based in the answer; prompt tokens have negative positions, the last one -1.
 * @property logprob natural logarithm of P(token | all tokens before it) under the edge model; NaN where it was
 *   not computed.
 * @property text the text that this token completes: empty inside a character of several tokens and for special
 *   tokens. The answer is the concatenation of all pieces and [FillStats.tail].
 */
data class Token(val id: Int, val position: Int, val source: Source, val logprob: Float, val text: String) :
    AnswerEvent
