package inversespec.edge

/**
 * The edge model behind one prompt, to which payloads of codecs predictive and portable are bound.
 *
 * @property identity 32 bytes that identify everything that decides its numbers: weights, graph, precision, vocabulary.
 * @property promptIds the ids before the answer.
 */
interface Predictor {
    val identity: ByteArray
    val promptIds: IntArray

    /**
     * Natural logarithms of the probabilities of the token after [text], which continues the prompt: double[V + 1] of
     * the V ordinary tokens by id and, last, of the end of the answer; -infinity for what cannot occur. Valid until
     * the next call, and the reader may change it.
     */
    fun row(text: List<Int>): DoubleArray
}
