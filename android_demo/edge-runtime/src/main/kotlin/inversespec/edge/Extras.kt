package inversespec.edge

/**
 * Optional fields of a payload. A payload with the defaults carries none of them.
 *
 * @property prompt the user's prompt as text.
 * @property step number of denoising steps run, of [totalSteps] planned; 0 of 0 where unknown.
 * @property confidence confidence level of the diffusion model, 0 (lowest) to 3 (highest), per anchor in the order
 *   of positions; or empty.
 */
data class Extras(
    val prompt: String? = null,
    val step: Int = 0,
    val totalSteps: Int = 0,
    val confidence: List<Int> = emptyList(),
) {
    /**
     * How unsure the diffusion model was: one minus the mean probability of its anchors, 0.025 to 0.75. Null where the
     * payload does not say, which is not the same as no doubt.
     */
    val doubt: Double?
        get() = if (confidence.isEmpty()) null else 1 - confidence.sumOf { MIDDLES[it] } / confidence.size

    private companion object {
        /** The probability that each level stands for: the middle of its range. */
        val MIDDLES = doubleArrayOf(0.25, 0.65, 0.875, 0.975)
    }
}
