package inversespec.edge

/** Who speaks in a [ChatMessage]. */
enum class ChatRole(internal val label: String) {
    /** How to answer. */
    SYSTEM("system"),

    /** The user's questions. */
    USER("user"),

    /** Answers so far. */
    ASSISTANT("assistant"),
}

/**
 * A message of a conversation.
 *
 * @property content its text. Names of special tokens in it are text.
 */
data class ChatMessage(val role: ChatRole, val content: String) {
    companion object {
        /** The conversation of one question, after a system message where [system] is given. */
        @JvmStatic
        @JvmOverloads
        fun prompt(text: String, system: String? = null): List<ChatMessage> =
            listOfNotNull(system?.let { ChatMessage(ChatRole.SYSTEM, it) }, ChatMessage(ChatRole.USER, text))
    }
}
