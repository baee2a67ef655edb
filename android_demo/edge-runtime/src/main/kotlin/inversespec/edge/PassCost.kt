package inversespec.edge

/**
 * Duration of one pass over [tokens] known tokens, with logits for the last of them. For one token this is the
 * time per token of plain decoding.
 *
 * @property milliseconds the median of the repetitions.
 */
data class PassCost(val tokens: Int, val milliseconds: Double) {
    val tokensPerSecond: Double get() = tokens * 1e3 / maxOf(milliseconds, 1e-9)
}
