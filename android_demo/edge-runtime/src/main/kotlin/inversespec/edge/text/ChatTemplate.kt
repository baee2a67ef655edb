package inversespec.edge.text

import inversespec.edge.BundleSchemaException
import inversespec.edge.UsageException

/** A message of a conversation; [role] is system, user or assistant. */
internal class ChatMessage(val role: String, val content: String)

/** A compiled chat template, `chat_template.json`: a prefix and a suffix per role. */
internal class ChatTemplate private constructor(
    private val defaultSystem: String?,
    private val affixes: Map<String, List<String>>,
    private val generation: String,
) {
    /** Text of a conversation, up to the start of the answer. */
    fun render(messages: List<ChatMessage>): String {
        val all = if (defaultSystem != null && messages.firstOrNull()?.role != "system") {
            listOf(ChatMessage("system", defaultSystem)) + messages
        } else {
            messages
        }
        return all.joinToString("") { message ->
            val (prefix, suffix) = affixes[message.role] ?: throw UsageException(
                "chat message: expected a role of ${ROLES.joinToString()}, found ${message.role}",
            )
            prefix + message.content + suffix
        } + generation
    }

    /** Text of a single prompt: default system message, user message, start of the answer. */
    fun renderPrompt(userText: String): String = render(listOf(ChatMessage("user", userText)))

    companion object {
        private val ROLES = listOf("system", "user", "assistant")

        /** Parses `chat_template.json`; throws [BundleSchemaException] where a field is missing or of another type. */
        fun fromJson(data: ByteArray): ChatTemplate {
            val value = try {
                Json.parse(data)
            } catch (error: JsonException) {
                throw BundleSchemaException("chat template: ${error.message}. Copy the bundle again.")
            }
            val map = value as? Map<*, *> ?: refuse("an object", value)
            for (name in ROLES + "default_system" + "generation") {
                if (name !in map) refuse("a field '$name'", map.keys)
            }
            val default = map["default_system"]
            if (default != null && default !is String) refuse("text or null in 'default_system'", default)
            val affixes = ROLES.associateWith { role ->
                val pair = (map[role] as? List<*>)?.filterIsInstance<String>()
                if (pair?.size != 2 || (map[role] as List<*>).size != 2) {
                    refuse("[prefix, suffix] in '$role'", map[role])
                }
                pair
            }
            val generation = map["generation"] as? String ?: refuse("text in 'generation'", map["generation"])
            return ChatTemplate(default as String?, affixes, generation)
        }

        private fun refuse(expected: String, found: Any?): Nothing =
            throw BundleSchemaException("chat template: expected $expected, found ${found.toString().take(80)}")
    }
}
