package inversespec.edge

/** Where a token comes from: the prompt, the cloud's anchors, or this device. */
enum class Source { PROMPT, ANCHOR, FILL }

/** Why an answer ended. */
enum class Stop {
    /** The payload states the length. */
    LENGTH,

    /** More than 0.4 of the positions are anchored and the last anchor has been emitted (paper section 3.3). */
    LAST_ANCHOR,

    /** The model ended the answer after the last anchor. */
    END_TOKEN,

    /** The most tokens asked for, or the canvas, or the context, are used up. */
    LIMIT,

    /** The caller did. */
    CANCELLED,
}

/**
 * One token of the stream.
 *
 * @property position 0-based in the answer; the prompt's tokens count up to -1.
 * @property logprob natural logarithm of P(token | everything before it) under the edge model; NaN where it was
 *   not asked for.
 * @property text the text this token completes: empty inside a character of several tokens and for special
 *   tokens. All pieces and [FillStats.tail] together are the answer.
 */
data class Token(val id: Int, val position: Int, val source: Source, val logprob: Float, val text: String)

/**
 * What an answer cost.
 *
 * @property passes calls of the model.
 * @property anchors anchors in the payload, also those behind a cancelled or cut end.
 * @property promptTokens tokens of the prompt in its chat template.
 * @property tokens tokens of the answer.
 * @property loadSeconds what opening the model took; the same for all its answers.
 * @property prefillSeconds to the end of the first pass; [fillSeconds]: from there, the callback's time included.
 * @property agreement from 0 to 1: the geometric mean of the probabilities the edge model gives the anchors; null
 *   where none was scored.
 * @property reused prompt tokens found in the cache of the answer before.
 * @property stop why the answer ended.
 * @property tail U+FFFD where the answer ends inside a character, else empty.
 */
data class FillStats(
    val passes: Int,
    val anchors: Int,
    val promptTokens: Int,
    val tokens: Int,
    val loadSeconds: Double,
    val prefillSeconds: Double,
    val fillSeconds: Double,
    val agreement: Double?,
    val reused: Int,
    val stop: Stop,
    val tail: String,
) {
    /** Tokens a second from the call to the end of the answer, without loading. */
    val tokensPerSecond: Double get() = tokens / maxOf(prefillSeconds + fillSeconds, 1e-9)
}

/**
 * How to open a model.
 *
 * @property variant one of the bundle's variants; null for the bundle's own choice.
 * @property threads null for one a fast core.
 * @property verifyHashes check size and SHA-256 of every file that is used. Leave it out only for a bundle that
 *   [Bundles.importZip] has just checked.
 */
data class Options(val variant: String? = null, val threads: Int? = null, val verifyHashes: Boolean = true)

/**
 * How to decode; none of these changes a token, but for where [maxTokens] ends the answer.
 *
 * @property maxTokens most tokens of the answer; null for the payload's canvas.
 * @property scoreAnchors report log P of each anchor, at the cost of the output head on its row.
 * @property echoPrompt give the prompt's tokens first.
 * @property maxChunk most tokens of one pass, and [maxRows] most rows of logits: they bound the memory it takes.
 */
data class FillOptions(
    val maxTokens: Int? = null,
    val scoreAnchors: Boolean = true,
    val echoPrompt: Boolean = false,
    val maxChunk: Int = 512,
    val maxRows: Int = 64,
)

/** Stops a running call from any thread; the model stays ready. One is for one call. */
class Cancel {
    @Volatile
    private var flag = false
    private var listener: (() -> Unit)? = null

    /** Whether [cancel] has been called. */
    val isCancelled: Boolean get() = flag

    /** Asks the call this was given to to end, at once where it can. May come before the call, and twice. */
    @Synchronized
    fun cancel() {
        flag = true
        listener?.invoke()
    }

    /** Has [onCancel] called while [body] runs, and at once where this is cancelled already. */
    internal fun <T> during(onCancel: () -> Unit, body: () -> T): T {
        listen(onCancel)
        try {
            return body()
        } finally {
            listen(null)
        }
    }

    @Synchronized
    private fun listen(onCancel: (() -> Unit)?) {
        listener = onCancel
        if (flag) onCancel?.invoke()
    }
}

/**
 * One point of the chunk curve: what a pass of so many known tokens costs, with logits for the last of them.
 *
 * The point of one token is the decode rate.
 *
 * @property milliseconds the median of the repetitions.
 */
data class ChunkCost(val tokens: Int, val milliseconds: Double) {
    val tokensPerSecond: Double get() = tokens * 1e3 / maxOf(milliseconds, 1e-9)
}
