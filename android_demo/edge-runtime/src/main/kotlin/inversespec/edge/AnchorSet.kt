package inversespec.edge

/** Maximum number of response positions: bounds the memory that a hostile payload can claim. */
const val MAX_CANVAS = 65_536

internal const val MAX_SESSION = 32
internal const val MAX_STEPS = 1 shl 20

/**
 * Tokens committed by the diffusion model, with their positions (paper section 3.1).
 *
 * @property positions 0-based in the response, strictly ascending, each below [canvas].
 * @property ids token ids, one per position, each below the contract's vocabulary size.
 * @property canvas number of response positions that the diffusion model denoised.
 * @property length number of response tokens before the first end marker, where known.
 * @property step number of denoising steps run, of [totalSteps] planned; 0 of 0 where unknown.
 * @property prompt the user's prompt as text, where the payload carries it.
 * @property session opaque name in hex that links the payloads of one conversation.
 * @property confidence the diffusion model's confidence, 0 to 3, per anchor; empty where not stated.
 * @throws AnchorRangeException where these are inconsistent.
 */
data class AnchorSet(
    val positions: List<Int>,
    val ids: List<Int>,
    val canvas: Int,
    val contract: Contract,
    val length: Int? = null,
    val step: Int = 0,
    val totalSteps: Int = 0,
    val prompt: String? = null,
    val session: String? = null,
    val confidence: List<Int> = emptyList(),
) {
    init {
        check(positions.size == ids.size) {
            "expected one token id a position, found ${positions.size} positions and ${ids.size} ids"
        }
        check(canvas in 1..MAX_CANVAS) { "canvas: expected 1 to $MAX_CANVAS positions, found $canvas" }
        val end = length ?: canvas
        check(end in 0..canvas) { "length: expected at most the canvas of $canvas positions, found $end" }
        var previous = -1
        for ((position, id) in positions.zip(ids)) {
            check(position > previous) {
                "anchor positions must ascend: expected more than $previous, found $position"
            }
            check(position < end) {
                "anchor position $position is outside the response: expected less than $end"
            }
            check(id in 0 until contract.vocabSize) {
                "token id $id at position $position is outside the vocabulary: " +
                    "expected 0 to ${contract.vocabSize - 1}"
            }
            previous = position
        }
        check(step in 0..MAX_STEPS && totalSteps in 0..MAX_STEPS) {
            "steps: expected 0 to $MAX_STEPS, found step $step of $totalSteps"
        }
        check(session == null || session.length in 2..2 * MAX_SESSION) {
            "session: expected 1 to $MAX_SESSION bytes, found ${session!!.length / 2}"
        }
        check(confidence.isEmpty() || confidence.size == ids.size) {
            "expected one confidence an anchor, found ${confidence.size} for ${ids.size} anchors"
        }
        check(confidence.all { it in 0..3 }) { "confidence: expected levels 0 to 3, found ${confidence.toSet()}" }
    }

    val size: Int get() = positions.size

    /** Fraction of the response that is anchored: of its length where known, else of the canvas. */
    val coverage: Double get() = positions.size / (length?.coerceAtLeast(1) ?: canvas).toDouble()

    private inline fun check(holds: Boolean, message: () -> String) {
        if (!holds) throw AnchorRangeException(message())
    }
}
