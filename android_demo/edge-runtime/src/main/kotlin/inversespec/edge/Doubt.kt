package inversespec.edge

import kotlin.math.exp

/** The device's doubt of its own tokens. */
object Doubt {
    /** Tokens of the device before its doubt counts; at the end of a shorter answer it counts too. */
    const val WATCHED = 6

    /** Doubt above which the cloud is asked where neither the caller nor the bundle ([BundleInfo.askFrom]) says it. */
    const val THRESHOLD = 0.5

    /** One minus the geometric mean probability of the device's own tokens, 0 to 1; null where it wrote none. */
    @JvmStatic
    fun ofDevice(tokens: List<Token>): Double? {
        val scores = tokens.filter { it.source == Source.FILL && !it.logprob.isNaN() }.map { it.logprob.toDouble() }
        return if (scores.isEmpty()) null else 1 - exp(scores.average())
    }
}
