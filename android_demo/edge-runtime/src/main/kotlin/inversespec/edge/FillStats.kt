package inversespec.edge

/** Reason for the end of an answer. */
enum class Stop {
    /** The payload states the length. */
    LENGTH,

    /** More than 0.4 of the positions are anchored and the last anchor has been emitted (paper section 3.3). */
    LAST_ANCHOR,

    /** The model ended the answer after the last anchor. */
    END_TOKEN,

    /** The limit of tokens, the canvas or the context is exhausted. */
    LIMIT,

    /** The caller cancelled. */
    CANCELLED,
}

/**
 * Statistics of one answer. Durations are wall time in seconds.
 *
 * @property passes number of model calls.
 * @property anchors number of anchors in the payload, including those after the end of a cancelled or cut answer.
 * @property promptTokens number of prompt tokens, with the chat template.
 * @property tokens number of tokens of the answer.
 * @property loadSeconds duration of opening the model; the same for all its answers.
 * @property prefillSeconds duration until the end of the first pass; [fillSeconds]: the rest, including callbacks.
 * @property agreement geometric mean, 0 to 1, of the probabilities that the edge model gives the anchors; null
 *   where none was scored.
 * @property reused number of prompt tokens reused from the cache of the previous answer.
 * @property stop reason for the end of the answer.
 * @property tail U+FFFD where the answer ends inside a character, else empty.
 * @property doubt how unsure the cloud was of the anchors ([Extras.doubt]); null where unknown.
 * @property notSure whether that is the bundle's [BundleInfo.notSureFrom] or more: the answer is better not shown; null
 *   where either is unknown.
 * @property service the part of the service; null for an answer without one.
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
    val service: ServiceReport? = null,
    val doubt: Double? = null,
    val notSure: Boolean? = null,
) {
    /** Tokens per second from the call to the end of the answer, without loading. */
    val tokensPerSecond: Double get() = tokens / maxOf(prefillSeconds + fillSeconds, 1e-9)
}
