package inversespec.edge.payload.codecs

/**
 * Content of a body of any codec.
 *
 * @property anchors token ids by position.
 * @property length length of the answer, where known.
 */
internal class DecodedBody(val anchors: Map<Int, Int>, val canvas: Int, val length: Int?)
