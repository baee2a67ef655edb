package inversespec.edge.engine

import inversespec.edge.EngineException

/**
 * A graph with float32 activations, whose logits agree across processors to about 1e-4.
 *
 * Graphs with quantised weights round activations to 8 bits where the processor is fast at that, and others do not.
 * Responsible for the one attribute that states it in a graph's bytes.
 */
internal object Fp32Activations {
    private val NAME = "accuracy_level".toByteArray(Charsets.US_ASCII)

    // AttributeProto: field 1 the name, field 3 the integer, which follows.
    private val PREFIX = byteArrayOf(0x0A, 0x0E) + NAME + 0x18
    private const val FLOAT32: Byte = 1

    /** Changes an ONNX graph in place and returns it; throws EngineException for a graph of another form. */
    fun apply(graph: ByteArray): ByteArray {
        var names = 0
        var changed = 0
        for (at in graph.indices) {
            if (matches(graph, at, NAME)) names++
            val value = at + PREFIX.size
            if (value < graph.size && graph[value] in 0..4 && matches(graph, at, PREFIX)) {
                graph[value] = FLOAT32
                changed++
            }
        }
        if (changed != names) {
            throw EngineException(
                "graph: expected accuracy_level of 0 to 4 in $names places, found it in $changed. " +
                    "Convert the model again.",
            )
        }
        return graph
    }

    private fun matches(data: ByteArray, at: Int, part: ByteArray): Boolean =
        at + part.size <= data.size && part.indices.all { data[at + it] == part[it] }
}
