package inversespec.edge

/**
 * The part of an anchor service in an answer.
 *
 * @property payloadBytes sizes of the payloads received and decoded.
 * @property fellBack the reason why payloads of codec compact were asked for in place of predictive ones; else null.
 * @property failure the reason why payloads are missing; null where all arrived.
 * @property doubt how unsure the diffusion model was of the latest payload's anchors ([Extras.doubt]); null where unknown.
 * @property sent bytes of the requests; 0 where nothing was asked.
 */
data class ServiceReport(
    val payloadBytes: List<Int> = emptyList(),
    val fellBack: String? = null,
    val failure: String? = null,
    val doubt: Double? = null,
    val sent: Int = 0,
)
