package inversespec.edge

/**
 * Options of a request to an anchor service.
 *
 * @property fractions shares of the planned denoising steps. One asks for one payload; several, or none with [stream],
 *   for a stream of them. Empty is the service's own choice.
 * @property stream decode at once and refine the answer as payloads arrive, instead of waiting for the payload.
 * @property fallback answer without anchors where the service cannot be reached, instead of failing.
 * @property codec [Codec.COMPACT], [Codec.PORTABLE] or [Codec.PREDICTIVE]; null is the service's own choice. A payload for
 *   another model, or that this device cannot decode, is replaced by a compact one.
 * @property confidence whether payloads say how sure the diffusion model is of each anchor, 2 bits each: [ServiceReport.doubt].
 */
data class ServiceOptions @JvmOverloads constructor(
    val fractions: List<Double> = emptyList(),
    val stream: Boolean = false,
    val fallback: Boolean = true,
    val codec: Codec? = null,
    val confidence: Boolean = true,
) {
    init {
        if (fractions.any { !(it > 0 && it <= 1) }) {
            throw UsageException("fractions: expected above 0 and at most 1, found $fractions")
        }
        if (fractions.size > 1 && !stream) {
            throw UsageException("fractions: expected one without stream, found ${fractions.size}")
        }
        if (codec == Codec.TEMPLATE_GZIP) {
            throw UsageException("codec: expected compact, portable or predictive, found ${codec.label}")
        }
    }
}
