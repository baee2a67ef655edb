package inversespec.edge

/** Encoding of a payload's body; [number] is its code in the header. */
enum class Codec(val number: Int, val label: String) {
    TEMPLATE_GZIP(0, "template-gzip"),
    COMPACT(2, "compact"),

    /** Coded against the edge model's own predictions, with which it is decoded. */
    PREDICTIVE(3, "predictive"),

    /** As [COMPACT], with the few anchors that suffice for one model in float32 activations. */
    PORTABLE(4, "portable");

    /** Whether a payload is for one model in float32 activations and no other. */
    internal val bound: Boolean get() = this == PREDICTIVE || this == PORTABLE
}

/**
 * Header and optional fields of a payload.
 *
 * @property tag 2 hex digits: the start of [Contract.identity] of a matching bundle; where the codec is bound to a
 *   model, the start of its fingerprint ([Predictor.identity]).
 * @property baseRef for a delta, the reference of the payload that it extends, as 2 hex digits.
 * @property size bytes of the payload; [bodyBytes]: bytes of its body, which holds the anchors.
 */
data class Header(
    val version: Int,
    val codec: Codec,
    val tag: String,
    val needsPrompt: Boolean,
    val baseRef: String?,
    val extras: Extras,
    val size: Int,
    val bodyBytes: Int,
)
