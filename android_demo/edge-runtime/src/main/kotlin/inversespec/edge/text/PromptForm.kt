package inversespec.edge.text

import inversespec.edge.ChatMessage
import inversespec.edge.UsageException

/** How a model reads prompts: a tokenizer and a chat template. */
internal class PromptForm(private val tokenizer: Tokenizer, private val template: ChatTemplate) {
    /** Token ids of a conversation, up to where its answer begins. */
    fun ids(messages: List<ChatMessage>): IntArray {
        if (messages.isEmpty()) throw UsageException("messages: expected at least one message, found none")
        return tokenizer.encode(template.pieces(messages))
    }
}
