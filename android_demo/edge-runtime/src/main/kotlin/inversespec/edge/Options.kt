package inversespec.edge

/**
 * Options of [EdgeRuntime.open].
 *
 * @property variant one of the bundle's variants; null for the bundle's default.
 * @property threads number of threads, shared by the passes that run at once; null for one per fast core.
 * @property verifyHashes verify size and SHA-256 of every file that is used. Omit this only for a bundle that
 *   [Bundles.importZip] has just verified.
 * @property engines number of passes that may run at once.
 */
data class RuntimeOptions @JvmOverloads constructor(
    val variant: String? = null,
    val threads: Int? = null,
    val verifyHashes: Boolean = true,
    val engines: Int = 1,
)

/**
 * Options of [EdgeRuntime.fill]. Only [sampling] changes tokens.
 *
 * @property maxTokens maximum number of tokens of the answer; null for the payload's canvas.
 * @property scoreAnchors compute the log probability of each anchor, which takes the output head on its row.
 * @property echoPrompt emit the prompt's tokens first.
 * @property maxChunk maximum number of tokens per pass, and [maxRows] of logit rows per pass: bounds on memory.
 * @property sampling null decodes greedily. Else tokens in gaps and behind the last anchor are drawn, of a predictive
 *   payload those behind it. Not for answers that are refined ([ServiceOptions.stream]): each payload would draw anew.
 */
data class FillOptions @JvmOverloads constructor(
    val maxTokens: Int? = null,
    val scoreAnchors: Boolean = true,
    val echoPrompt: Boolean = false,
    val maxChunk: Int = 512,
    val maxRows: Int = 64,
    val sampling: Sampling? = null,
)
