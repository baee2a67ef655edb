package inversespec.edge.text

import inversespec.edge.ChatMessage
import inversespec.edge.Contract
import inversespec.edge.UsageException

/** How a model reads prompts: a tokenizer, a chat template, and the rule of their contract for messages. */
internal class PromptForm(
    private val tokenizer: Tokenizer,
    private val template: ChatTemplate,
    private val contract: Contract,
) {
    /** Token ids of a conversation, up to where its answer begins. */
    fun ids(messages: List<ChatMessage>): IntArray {
        if (messages.isEmpty()) throw UsageException("messages: expected at least one message, found none")
        val pieces = template.pieces(messages)
        if (contract.contents == Contract.PLAIN) return tokenizer.encode(pieces)
        return tokenizer.encode(pieces.joinToString("") { it.text })
    }
}
