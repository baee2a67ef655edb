package inversespec.edge

/** One event of an answer, in order: tokens, tokens that are taken back, and what the service did. */
sealed interface AnswerEvent

/** Takes back the tokens at [position] and after it: a later payload contradicts them. */
data class Retract(val position: Int) : AnswerEvent

/** A payload has arrived and been decoded: its size, and the number of [anchors] known now. */
data class PayloadReceived(val bytes: Int, val anchors: Int) : AnswerEvent

/**
 * Payloads of codec compact are asked for instead of predictive ones, which this device cannot decode.
 *
 * @property reason may be shown to a user.
 */
data class CompactRequested(val reason: String) : AnswerEvent

/**
 * The service cannot be reached, or has stopped in the middle: this device answers by itself from here on.
 *
 * @property reason may be shown to a user.
 * @property alone whether no payload has arrived at all.
 */
data class ServiceFailed(val reason: String, val alone: Boolean) : AnswerEvent

/** The answer is complete, or was cancelled: the last event of a Flow. [turn]: of a session's answer. */
data class Finished @JvmOverloads constructor(val stats: FillStats, val turn: TurnAnswer? = null) : AnswerEvent
