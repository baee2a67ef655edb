package inversespec.edge.coroutines

import inversespec.edge.*
import kotlinx.coroutines.flow.Flow

/** A whole answer: its text, its tokens without those of the prompt, and its cost. */
class CompleteAnswer(val text: String, val tokens: List<Token>, val stats: FillStats)

/** Collects a Flow of an [EdgeModel] to its end; tokens that were taken back are not part of the answer. */
suspend fun Flow<AnswerEvent>.complete(): CompleteAnswer {
    val tokens = ArrayList<Token>()
    var stats: FillStats? = null
    collect { event ->
        when (event) {
            is Token -> if (event.source != Source.PROMPT) tokens.add(event)
            is Retract -> tokens.subList(event.position, tokens.size).clear()
            is Finished -> stats = event.stats
            else -> Unit
        }
    }
    val found = checkNotNull(stats) { "expected the Flow of an EdgeModel, found one without its end" }
    return CompleteAnswer(tokens.joinToString("") { it.text } + found.tail, tokens, found)
}
