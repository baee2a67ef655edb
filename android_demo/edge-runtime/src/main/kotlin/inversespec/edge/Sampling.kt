package inversespec.edge

/**
 * How tokens in gaps and behind the last anchor are drawn from the model's distribution. Equal settings give equal
 * answers, here and in the Python runtime.
 *
 * @property temperature logits are divided by it; 0 takes the likeliest token.
 * @property topP null, or the mass that the shortest leading run of tokens has to exceed; the others are not drawn
 *   (Holtzman et al., arXiv 1904.09751).
 * @property seed of the answer's random numbers, from 0.
 */
data class Sampling @JvmOverloads constructor(
    val temperature: Double = 1.0,
    val topP: Double? = null,
    val seed: Long = 0,
) {
    init {
        if (!(temperature >= 0 && temperature.isFinite())) {
            throw UsageException("temperature: expected a number from 0, found $temperature")
        }
        if (topP != null && !(topP > 0 && topP <= 1)) {
            throw UsageException("top-p: expected above 0, at most 1, found $topP")
        }
        if (seed < 0) throw UsageException("seed: expected a number from 0, found $seed")
    }
}
