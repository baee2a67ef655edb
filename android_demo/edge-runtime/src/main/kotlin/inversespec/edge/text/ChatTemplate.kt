package inversespec.edge.text

import inversespec.edge.*

/** A part of a rendered conversation: a message's content, or text of the template. */
internal class Piece(val text: String, val isContent: Boolean)

/** A compiled chat template, `chat_template.json`: a prefix and a suffix per role. */
internal class ChatTemplate private constructor(
    private val defaultSystem: String?,
    private val affixes: Map<ChatRole, List<String>>,
    private val generation: String,
    private val start: String,
) {
    /** The parts of a conversation in order, up to the start of the answer. */
    fun pieces(messages: List<ChatMessage>): List<Piece> {
        val all = if (defaultSystem != null && messages.firstOrNull()?.role != ChatRole.SYSTEM) {
            listOf(ChatMessage(ChatRole.SYSTEM, defaultSystem)) + messages
        } else {
            messages
        }
        return listOf(Piece(start, false)) + all.flatMap { message ->
            val (prefix, suffix) = affixes.getValue(message.role)
            listOf(Piece(prefix, false), Piece(message.content, true), Piece(suffix, false))
        } + Piece(generation, false)
    }

    companion object {
        /** Parses `chat_template.json`; throws [BundleSchemaException] where a field is missing or of another type. */
        fun fromJson(data: ByteArray): ChatTemplate {
            val value = try {
                Json.parse(data)
            } catch (error: JsonException) {
                throw BundleSchemaException("chat template: ${error.message}. Copy the bundle again.")
            }
            val map = value as? Map<*, *> ?: refuse("an object", value)
            for (name in ChatRole.entries.map { it.label } + "default_system" + "generation") {
                if (name !in map) refuse("a field '$name'", map.keys)
            }
            val default = map["default_system"]
            if (default != null && default !is String) refuse("text or null in 'default_system'", default)
            val affixes = ChatRole.entries.associateWith { role ->
                val found = map[role.label]
                val pair = (found as? List<*>)?.filterIsInstance<String>()
                if (pair?.size != 2 || found.size != 2) refuse("[prefix, suffix] in '${role.label}'", found)
                pair
            }
            val generation = map["generation"] as? String ?: refuse("text in 'generation'", map["generation"])
            val start = map.getOrDefault("start", "") as? String ?: refuse("text in 'start'", map["start"])
            return ChatTemplate(default as String?, affixes, generation, start)
        }

        private fun refuse(expected: String, found: Any?): Nothing =
            throw BundleSchemaException("chat template: expected $expected, found ${found.toString().take(80)}")
    }
}
