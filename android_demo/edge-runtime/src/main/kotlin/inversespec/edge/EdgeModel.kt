package inversespec.edge

import java.io.File

/**
 * A loaded model, ready to turn payloads into text.
 *
 * ```kotlin
 * EdgeModel.open(File("edge_runtime/bundles/tiny-qwen")).use { model ->
 *     val stats = model.fill(File("payload.bin").readBytes(), prompt = null) { token -> print(token.text) }
 *     println("${stats.tail}\n${stats.passes} passes, agreement ${stats.agreement}")
 * }
 * ```
 *
 * Opening and every call block, so they belong on a thread of their own (Dispatchers.IO, an Executor), never on
 * the main thread. Calls from several threads wait for each other. Nothing here opens a network connection.
 */
class EdgeModel private constructor(val info: BundleInfo) : AutoCloseable {
    companion object {
        /**
         * Opens a bundle folder and loads its model.
         *
         * @throws BundleException where the folder is no whole bundle, [EngineException] where the model cannot
         *   be loaded.
         */
        fun open(dir: File, options: Options = Options()): EdgeModel = TODO()
    }

    /**
     * Finishes the answer whose anchors a payload carries; without a payload it writes the whole answer.
     *
     * Greedy, so the same input gives the same tokens. What the prompt shares with the call before is not run
     * again. Where [onToken] throws, that is thrown on and the model stays ready.
     *
     * @param payload the bytes as they came; null for none.
     * @param prompt the user's prompt; may be null where the payload carries it.
     * @param cancel ends the answer early: the stats say [Stop.CANCELLED].
     * @param onToken called on the calling thread with each token as soon as it is known.
     * @throws PayloadException for a payload that cannot be used, [UsageException] for a prompt that is missing
     *   or not the payload's, [ContextException] where prompt and anchors do not fit the model's context,
     *   [EngineException] where the model fails or is closed.
     */
    fun fill(
        payload: ByteArray?,
        prompt: String?,
        cancel: Cancel = Cancel(),
        options: FillOptions = FillOptions(),
        onToken: (Token) -> Unit,
    ): FillStats = TODO()

    /** Writes the whole answer on this device: [fill] without a payload. */
    fun generate(
        prompt: String,
        maxTokens: Int? = null,
        cancel: Cancel = Cancel(),
        onToken: (Token) -> Unit,
    ): FillStats = fill(null, prompt, cancel, FillOptions(maxTokens = maxTokens), onToken)

    /**
     * What passes of 1, 2, 4... 64 known tokens cost on this device, as far as they fit the context; the first is
     * the decode rate. Each size is run [repeat] times after one that does not count.
     *
     * @param onCost called with each point as it is known.
     * @return the points, fewer where cancelled.
     */
    fun bench(repeat: Int = 5, cancel: Cancel = Cancel(), onCost: (ChunkCost) -> Unit = {}): List<ChunkCost> = TODO()

    /** Frees the model's memory; waits for a running call, which ends as if cancelled. May be called twice. */
    override fun close() = TODO()
}
