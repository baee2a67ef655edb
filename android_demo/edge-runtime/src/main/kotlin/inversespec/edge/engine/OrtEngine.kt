package inversespec.edge.engine

import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtLoggingLevel
import ai.onnxruntime.OrtSession
import inversespec.edge.EngineException
import inversespec.edge.bundle.ModelShape
import java.io.File
import java.io.IOException
import java.nio.Buffer
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.LongBuffer

/**
 * A bundle's graph on ONNX Runtime, with one cache buffer bound as both past and present.
 *
 * Zero-copy: the cache is updated in place, rewinding shortens the mask, and logits are read from the output buffer.
 * The cache starts small and doubles as it fills. Not thread-safe, except for [terminate].
 *
 * @param fp32Activations see [Fp32Activations].
 */
internal class OrtEngine(
    graph: File,
    private val shape: ModelShape,
    context: Int,
    threads: Int,
    fp32Activations: Boolean = false,
) : Engine(context, shape.vocabSize) {
    private val env: OrtEnvironment
    private val sessionOptions: OrtSession.SessionOptions
    private val session: OrtSession
    private val runOptions: OrtSession.RunOptions
    private val names = (0 until shape.layers).flatMap { listOf("$it.key", "$it.value") }
    private val inputs = LinkedHashMap<String, OnnxTensor>()
    private val outputs = LinkedHashMap<String, OnnxTensor>()

    private var caches = emptyList<FloatBuffer>()
    private var capacity = 0
    private var mask = longs(0)
    private var ids = longs(0)
    private var rows = longs(0)
    private var logitRows = 0
    private val logits = Logits(vocab).apply { buffer = floats(0) }

    private val terminating = Any()
    private var closed = false

    init {
        try {
            env = OrtEnvironment.getEnvironment()
            sessionOptions = options(threads)
            // From their path the weights are memory-mapped.
            session = if (fp32Activations) {
                sessionOptions.addConfigEntry(WEIGHTS_FOLDER, "${graph.parentFile}")
                env.createSession(Fp32Activations.apply(graph.readBytes()), sessionOptions)
            } else {
                env.createSession(graph.path, sessionOptions)
            }
            runOptions = OrtSession.RunOptions()
        } catch (error: OrtException) {
            throw EngineException("$graph: expected a graph ONNX Runtime can load, found: ${error.message}", error)
        } catch (error: IOException) {
            throw EngineException("$graph: expected a readable graph, found: ${error.message}", error)
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

    override fun run(chunk: IntArray, rows: IntArray): Logits {
        if (closed) throw EngineException("expected an open model, found one that was closed")
        val total = length + chunk.size
        try {
            reserve(total, chunk.size, rows.size)
            for (index in chunk.indices) ids.put(index, chunk[index].toLong())
            for (index in rows.indices) this.rows.put(index, rows[index].toLong())
            bind(total, chunk.size, rows.size)
            session.run(inputs, emptySet(), outputs, runOptions).close()
        } catch (error: OutOfMemoryError) {
            throw outOfMemory(total, error)
        } catch (error: OrtException) {
            val text = error.message.orEmpty()
            if ("terminate flag" in text) throw PassTerminatedException()
            if ("bad_alloc" in text || "Failed to allocate memory" in text) throw outOfMemory(total, error)
            throw EngineException("ONNX Runtime failed on ${chunk.size} tokens after $length: $text", error)
        }
        return logits
    }

    override fun cached(tokens: Int): ByteArray {
        val out = ByteBuffer.allocate(4 * names.size * shape.kvHeads * tokens * shape.headDim).order(ByteOrder.LITTLE_ENDIAN)
        val floats = out.asFloatBuffer()
        for (buffer in caches) for (head in 0 until shape.kvHeads) floats.put(part(buffer, head, tokens))
        return out.array()
    }

    override fun write(cache: ByteArray, tokens: Int) {
        reserve(tokens, 0, 0)
        val floats = ByteBuffer.wrap(cache).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer()
        for (buffer in caches) {
            for (head in 0 until shape.kvHeads) {
                val source = floats.duplicate()
                (source as Buffer).limit(floats.position() + tokens * shape.headDim)
                (floats as Buffer).position(source.limit())
                part(buffer, head, tokens).put(source)
            }
        }
    }

    /** The first tokens of a head in a cache buffer. */
    private fun part(buffer: FloatBuffer, head: Int, tokens: Int): FloatBuffer {
        val held = buffer.capacity() / (shape.kvHeads * shape.headDim)
        val found = buffer.duplicate()
        (found as Buffer).limit((head * held + tokens) * shape.headDim)
        (found as Buffer).position(head * held * shape.headDim)
        return found
    }

    override fun terminate(now: Boolean) = synchronized(terminating) {
        if (!closed) runOptions.setTerminate(now)
    }

    override fun close() = synchronized(terminating) {
        if (closed) return
        closed = true
        // Cache tensors are both inputs and outputs.
        (inputs.values + outputs.values).distinct().forEach(OnnxTensor::close)
        inputs.clear()
        outputs.clear()
        runOptions.close()
        session.close()
        sessionOptions.close()
    }

    /** Binds tensors of this pass's shapes over the buffers; between single-token passes only the mask changes. */
    private fun bind(total: Int, size: Int, wanted: Int) {
        inputs.bind(INPUT_IDS, longArrayOf(1, size.toLong())) { OnnxTensor.createTensor(env, ids.first(size), it) }
        inputs.bind(MASK, longArrayOf(1, total.toLong())) { OnnxTensor.createTensor(env, mask.first(total), it) }
        inputs.bind(ROWS, longArrayOf(wanted.toLong())) { OnnxTensor.createTensor(env, rows.first(wanted), it) }
        outputs.bind(LOGITS, longArrayOf(wanted.toLong(), vocab.toLong())) {
            OnnxTensor.createTensor(env, logits.buffer.first(wanted * vocab), it)
        }
    }

    private inline fun MutableMap<String, OnnxTensor>.bind(
        name: String,
        shape: LongArray,
        create: (LongArray) -> OnnxTensor,
    ) {
        if (this[name]?.info?.shape.contentEquals(shape)) return
        drop(name)
        this[name] = create(shape)
    }

    private fun MutableMap<String, OnnxTensor>.drop(name: String) {
        remove(name)?.close()
    }

    /** Grows the buffers for [total] tokens, a chunk of [size] and [wanted] rows; keeps the cached tokens. */
    private fun reserve(total: Int, size: Int, wanted: Int) {
        if (ids.capacity() < size) {
            inputs.drop(INPUT_IDS)
            ids = longs(size)
        }
        if (rows.capacity() < wanted) {
            inputs.drop(ROWS)
            rows = longs(wanted)
        }
        if (logitRows < wanted) {
            outputs.drop(LOGITS)
            logits.buffer = floats(wanted * vocab)
            logitRows = wanted
        }
        if (total <= capacity) return
        val room = minOf(maxOf(MIN_BUFFER, Integer.highestOneBit(2 * total - 1)), context)
        val dims = longArrayOf(1, shape.kvHeads.toLong(), room.toLong(), shape.headDim.toLong())
        val grown = names.indices.map { floats(shape.kvHeads * room * shape.headDim) }
        if (length > 0) for ((from, to) in caches.zip(grown)) copy(from, to)
        // If an allocation below fails, the next pass grows again from these copies.
        capacity = 0
        caches = grown
        for ((name, buffer) in names.zip(grown)) {
            // One tensor as input and output: the graph then updates it in place.
            inputs.drop("past_key_values.$name")
            val tensor = OnnxTensor.createTensor(env, buffer, dims)
            inputs["past_key_values.$name"] = tensor
            outputs["present.$name"] = tensor
        }
        inputs.drop(MASK)
        mask = longs(room)
        for (index in 0 until room) mask.put(index, 1)
        capacity = room
    }

    /** Copies the first [length] tokens of every head. */
    private fun copy(from: FloatBuffer, to: FloatBuffer) {
        for (head in 0 until shape.kvHeads) part(to, head, length).put(part(from, head, length))
    }

    private fun outOfMemory(total: Int, cause: Throwable): EngineException {
        val bytes = 4L * names.size * shape.kvHeads * shape.headDim * maxOf(total, capacity)
        return EngineException(
            "out of memory: the cache of $total tokens takes ${bytes shr 20} MB beside the weights. " +
                "Use a shorter prompt, fewer tokens, or a smaller variant.",
            cause,
        )
    }

    private companion object {
        /** Minimum capacity of the cache buffer, in tokens. */
        const val MIN_BUFFER = 64
        const val INPUT_IDS = "input_ids"
        const val MASK = "attention_mask"
        const val ROWS = "rows"
        const val LOGITS = "logits"
        const val WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"

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

        fun bytes(size: Int): ByteBuffer = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder())

        fun floats(size: Int): FloatBuffer = bytes(Math.multiplyExact(4, size)).asFloatBuffer()

        fun longs(size: Int): LongBuffer = bytes(Math.multiplyExact(8, size)).asLongBuffer()

        fun LongBuffer.first(size: Int): LongBuffer = duplicate().also { (it as Buffer).limit(size) }

        fun FloatBuffer.first(size: Int): FloatBuffer = duplicate().also { (it as Buffer).limit(size) }
    }
}
