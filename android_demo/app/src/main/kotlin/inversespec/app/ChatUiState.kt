package inversespec.app

import inversespec.edge.InferenceMode

/** An anchor service, as the user entered it. */
data class ServiceSettings(val address: String, val key: String?)

/**
 * A question and its answer.
 *
 * @property lead the words before an answer that is not what was asked for.
 * @property note where the answer came from and what it has cost, or why it was not what was asked for.
 */
data class Turn(val question: String, val answer: AnswerText = AnswerText(), val note: String? = null, val lead: String = "")

/**
 * State of the Chat screen.
 *
 * @property isPrivate whether something was said that must not leave the device.
 * @property draft a question to be asked: one whose answer was cut off; [draftVersion] counts how often it was set.
 */
data class ChatUiState(
    val turns: List<Turn> = emptyList(),
    val busy: Boolean = false,
    val mode: InferenceMode = InferenceMode.ONLY_ON_DEVICE,
    val isPrivate: Boolean = false,
    val draft: String = "",
    val draftVersion: Int = 0,
    val error: String? = null,
) {
    /** This state with the last turn changed. */
    fun last(change: (Turn) -> Turn): ChatUiState =
        if (turns.isEmpty()) this else copy(turns = turns.dropLast(1) + change(turns.last()))
}
