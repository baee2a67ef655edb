package inversespec.edge.engine

import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtLoggingLevel
import ai.onnxruntime.OrtSession
import inversespec.edge.EngineException
import inversespec.edge.bundle.ModelShape
import java.io.File

/**
 * A bundle's graph and weights, loaded by ONNX Runtime; any number of [OrtEngine] run on it.
 */
internal class OrtGraph(
    graph: File,
    val shape: ModelShape,
    threads: Int,
) : AutoCloseable {
    val env: OrtEnvironment
    val session: OrtSession

    /** Of the cache tensors. */
    val names = (0 until shape.layers).flatMap { listOf("$it.key", "$it.value") }
    private val options: OrtSession.SessionOptions

    init {
        try {
            env = OrtEnvironment.getEnvironment()
            options = options(threads)
            // From their path the weights are memory-mapped.
            session = env.createSession(graph.path, options)
        } catch (error: OrtException) {
            throw EngineException("$graph: expected a graph ONNX Runtime can load, found: ${error.message}", error)
        } catch (error: LinkageError) {
            throw EngineException(
                "expected ONNX Runtime's native library for this device, found: ${error.message}",
                error,
            )
        }
        val wanted = setOf("input_ids", "attention_mask", "rows") + names.map { "past_key_values.$it" }
        val differ = (wanted - session.inputNames) + (session.inputNames - wanted)
        if (differ.isNotEmpty()) {
            close()
            throw EngineException(
                "$graph: expected the inputs of a ${shape.layers}-layer model as bundle.json states it, but " +
                    "${differ.sorted().take(4)} differ. Convert the model again.",
            )
        }
    }

    override fun close() {
        session.close()
        options.close()
    }

    private companion object {
        /**
         * Session options for one request at a time: threads spin within a pass, where waits take microseconds,
         * and sleep between passes, to save the battery.
         */
        fun options(threads: Int) = OrtSession.SessionOptions().apply {
            setIntraOpNumThreads(threads)
            setInterOpNumThreads(1)
            setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_ERROR)
            // Patterns are cached per shape, and chunks vary in shape.
            setMemoryPatternOptimization(false)
            addConfigEntry("session.intra_op.allow_spinning", "1")
            addConfigEntry("session.force_spinning_stop", "1")
        }
    }
}
