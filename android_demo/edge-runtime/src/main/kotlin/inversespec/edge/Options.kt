package inversespec.edge

/**
 * Options of [EdgeRuntime.open].
 *
 * @property variant one of the bundle's variants; null for the bundle's default.
 * @property threads number of threads; null for one per fast core.
 * @property verifyHashes verify size and SHA-256 of every file that is used. Omit this only for a bundle that
 *   [Bundles.importZip] has just verified.
 * @property provider what computes the model's operators. Payloads of codec predictive are always decoded on
 *   [Provider.CPU]: they need the writer's exact numbers.
 */
data class RuntimeOptions(
    val variant: String? = null,
    val threads: Int? = null,
    val verifyHashes: Boolean = true,
    val provider: Provider = Provider.CPU,
)

/**
 * An execution provider of ONNX Runtime. Operators that it does not have are computed on [CPU], as are those of fused
 * graphs (`int8`, `int4`) that only [CPU] has. Another provider than [CPU] may change tokens where two are nearly as
 * probable: measure before you choose one.
 */
enum class Provider {
    CPU,

    /** Google's kernels for float32 on ARM and x86. */
    XNNPACK,

    /** Android's interface to accelerators. */
    NNAPI,
}

/**
 * Options of [EdgeRuntime.fill]. None of them changes a token, except that [maxTokens] ends the answer.
 *
 * @property maxTokens maximum number of tokens of the answer; null for the payload's canvas.
 * @property scoreAnchors compute the log probability of each anchor, which takes the output head on its row.
 * @property echoPrompt emit the prompt's tokens first.
 * @property maxChunk maximum number of tokens per pass, and [maxRows] of logit rows per pass: bounds on memory.
 */
data class FillOptions(
    val maxTokens: Int? = null,
    val scoreAnchors: Boolean = true,
    val echoPrompt: Boolean = false,
    val maxChunk: Int = 512,
    val maxRows: Int = 64,
)
