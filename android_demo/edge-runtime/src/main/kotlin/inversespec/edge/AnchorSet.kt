package inversespec.edge

/** Maximum number of response positions: bounds the memory that a hostile payload can claim. */
const val MAX_CANVAS = 65_536

/**
 * Tokens committed by the diffusion model, with their positions (paper section 3.1).
 *
 * @property positions 0-based in the response, strictly ascending, each below [canvas].
 * @property ids token ids, one per position, each an ordinary one of the contract.
 * @property canvas number of response positions that the diffusion model denoised.
 * @property length number of response tokens before the first end marker, where known.
 * @throws AnchorRangeException where these are inconsistent.
 */
data class AnchorSet(
    val positions: List<Int>,
    val ids: List<Int>,
    val canvas: Int,
    val contract: Contract,
    val length: Int? = null,
) {
    init {
        check(positions.size == ids.size) {
            "expected one token id per position, found ${positions.size} positions and ${ids.size} ids"
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
            check(id !in contract.reserved) {
                "token id $id at position $position is a special token: expected an ordinary one"
            }
            previous = position
        }
    }

    val size: Int get() = positions.size

    /** Token ids by position, in ascending order of position. */
    val byPosition: Map<Int, Int> by lazy { positions.zip(ids).toMap() }

    /** Fraction of the response that is anchored: of its length where known, else of the canvas. */
    val coverage: Double get() = positions.size / (length?.coerceAtLeast(1) ?: canvas).toDouble()

    private inline fun check(holds: Boolean, message: () -> String) {
        if (!holds) throw AnchorRangeException(message())
    }

    companion object {
        /** The anchors of token ids by position, in any order. */
        fun of(tokens: Map<Int, Int>, canvas: Int, contract: Contract, length: Int? = null): AnchorSet {
            val positions = tokens.keys.sorted()
            return AnchorSet(positions, positions.map(tokens::getValue), canvas, contract, length)
        }

        /** No anchors: the edge model generates the whole answer. */
        fun empty(canvas: Int, contract: Contract) = AnchorSet(emptyList(), emptyList(), canvas, contract)
    }
}
