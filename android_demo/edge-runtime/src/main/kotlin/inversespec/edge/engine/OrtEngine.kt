package inversespec.edge.engine

import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtSession
import inversespec.edge.EngineException
import java.nio.Buffer
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.LongBuffer

/**
 * A cache over a graph on ONNX Runtime, with one buffer bound as both past and present.
 *
 * Zero-copy: the cache is updated in place, rewinding shortens the mask, and logits are read from the output buffer.
 * The cache starts small and doubles as it fills. Not thread-safe, except for [terminate]; its forks may run beside it.
 */
internal class OrtEngine(
    private val graph: OrtGraph,
    context: Int,
    turns: Turns = Turns(),
) : Engine(context, graph.shape.vocabSize, turns) {
    private val shape = graph.shape
    private val names = graph.names
    private val env = graph.env
    private val runOptions = OrtSession.RunOptions()
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

    override fun run(chunk: IntArray, rows: IntArray): Logits {
        if (closed) throw EngineException("expected an open model, found one that was closed")
        val total = length + chunk.size
        try {
            reserve(total, chunk.size, rows.size)
            for (index in chunk.indices) ids.put(index, chunk[index].toLong())
            for (index in rows.indices) this.rows.put(index, rows[index].toLong())
            bind(total, chunk.size, rows.size)
            graph.session.run(inputs, emptySet(), outputs, runOptions).close()
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

    override val cacheBytes: Long get() = bytes(capacity)

    private fun bytes(tokens: Int) = 4L * names.size * shape.kvHeads * shape.headDim * tokens

    override fun copy(tokens: Int): OrtEngine {
        val other = OrtEngine(graph, context, turns)
        try {
            if (tokens > 0) other.reserve(tokens, 0, 0)
        } catch (error: OutOfMemoryError) {
            other.close()
            throw outOfMemory(tokens, error)
        }
        for ((from, to) in caches.zip(other.caches)) copy(from, to, tokens)
        return other
    }

    /** The first tokens of a head in a cache buffer. */
    private fun part(buffer: FloatBuffer, head: Int, tokens: Int): FloatBuffer {
        val held = buffer.capacity() / (shape.kvHeads * shape.headDim)
        val found = buffer.duplicate()
        (found as Buffer).limit((head * held + tokens) * shape.headDim)
        (found as Buffer).position(head * held * shape.headDim)
        return found
    }

    override fun terminate(now: Boolean) {
        synchronized(terminating) { if (!closed) runOptions.setTerminate(now) }
        super.terminate(now)
    }

    override fun close() = synchronized(terminating) {
        if (closed) return
        closed = true
        // Cache tensors are both inputs and outputs.
        (inputs.values + outputs.values).distinct().forEach(OnnxTensor::close)
        inputs.clear()
        outputs.clear()
        runOptions.close()
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
        if (length > 0) for ((from, to) in caches.zip(grown)) copy(from, to, length)
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

    /** Copies the first [tokens] of every head. */
    private fun copy(from: FloatBuffer, to: FloatBuffer, tokens: Int) {
        for (head in 0 until shape.kvHeads) part(to, head, tokens).put(part(from, head, tokens))
    }

    private fun outOfMemory(total: Int, cause: Throwable): EngineException {
        return EngineException(
            "out of memory: the cache of $total tokens takes ${bytes(maxOf(total, capacity)) shr 20} MB beside the weights. " +
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

        fun direct(size: Int): ByteBuffer = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder())

        fun floats(size: Int): FloatBuffer = direct(Math.multiplyExact(4, size)).asFloatBuffer()

        fun longs(size: Int): LongBuffer = direct(Math.multiplyExact(8, size)).asLongBuffer()

        fun LongBuffer.first(size: Int): LongBuffer = duplicate().also { (it as Buffer).limit(size) }

        fun FloatBuffer.first(size: Int): FloatBuffer = duplicate().also { (it as Buffer).limit(size) }
    }
}
