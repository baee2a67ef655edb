package inversespec.edge

import inversespec.edge.payload.codecs.MixPredictor
import inversespec.edge.payload.expectedCheck
import inversespec.edge.text.Json
import java.io.File
import java.util.Random
import java.util.concurrent.atomic.AtomicReference
import kotlin.concurrent.thread
import kotlin.system.exitProcess

/**
 * Hostile bytes for the payload decoder: only a [PayloadException] may come out, in bounded time and memory.
 *
 * Inputs are mutations of the test vectors. Half are raw; the others are sealed with a right check, so that the codecs
 * behind it are reached; of these some are deltas, and some of codec predictive, with a model of integers.
 */
internal class PayloadFuzz(seed: Long) {
    private val random = Random(seed)
    private val document = Json.parse(File(repo, "tests/vectors/payload_vectors.json").readBytes()).row()
    private val pieces = (document["toy_pieces"] as List<*>).map { (it as String).hexToBytes() }
    private val seeds = document["vectors"].rows().map { it.text("payload").hexToBytes() }
    private val toy = contract(pieces.size)
    private val qwen = contract(151_643)
    private val prompt = intArrayOf(3838, 374, 279, 6722, 315, 9625, 30)
    private val predictor = MixPredictor(toy.vocabSize, prompt)
    private val base = AnchorSet(listOf(0, 1, 5), listOf(7, 8, 9), 64, toy).let { Base(byteArrayOf(1), it) }
    private val qwenBase = AnchorSet(listOf(0, 1, 5), listOf(7, 8, 9), 64, qwen).let { Base(byteArrayOf(1), it) }

    /** Every byte as a token: encoding is the identity. */
    private val tokens = object : TokenBytes {
        override fun encode(text: String) = text.toByteArray().let { data -> IntArray(data.size) { data[it] + 128 } }

        override fun tokenBytes(id: Int) = byteArrayOf((id - 128).toByte())
    }

    var decoded = 0
        private set

    /** The next input. */
    fun input(): ByteArray = mutate(seeds[random.nextInt(seeds.size)])

    /** Runs one input; whatever else than a PayloadException is thrown propagates. */
    fun run(data: ByteArray) {
        val large = random.nextInt(8) == 0
        val contract = if (large) qwen else toy
        val raw = random.nextBoolean()
        val primed = if (random.nextBoolean()) prompt else null
        var shared = Shared(contract, primed, tokens)
        var bytes = data
        if (!raw && data.size >= 4) {
            val codec = if (random.nextInt(16) == 0) Codec.PREDICTIVE else Codec.values()[random.nextInt(3)]
            val adapts = codec == Codec.COMPACT || codec == Codec.PREDICTIVE
            val delta = adapts && random.nextInt(4) == 0
            val own = if (codec == Codec.PREDICTIVE) toy else contract
            val given = if (delta) (if (own === qwen) qwenBase else base) else null
            val ids = if (codec == Codec.PREDICTIVE) prompt else if (adapts) primed else null
            val tag = if (codec == Codec.PREDICTIVE) predictor.identity[0] else own.tag.hexToBytes()[0]
            val flags = (if (ids != null) 4 else 0) + (if (delta) 2 else 0) + (data[0].toInt() and 1)
            val start = byteArrayOf((0x40 or (codec.number shl 3) or flags).toByte(), tag, 0, 0)
            val reference = if (given != null) sha256(given.data).copyOf(1) else ByteArray(0)
            // The model of integers takes longer with every position, and a body codes 64 per byte.
            val end = if (codec == Codec.PREDICTIVE) minOf(data.size, MAX_PREDICTIVE_BYTES) else data.size
            bytes = start + reference + data.copyOfRange(4, end)
            val check = expectedCheck(bytes, codec, own, ids, given)
            bytes[2] = (check shr 8).toByte()
            bytes[3] = check.toByte()
            shared = Shared(own, ids, tokens, given, predictor.takeIf { codec == Codec.PREDICTIVE })
        }
        try {
            Payloads.peek(bytes)
            Payloads.decode(bytes, shared)
            decoded++
        } catch (refused: PayloadException) {
            // As good as a result.
        }
    }

    private fun mutate(seed: ByteArray): ByteArray {
        var out = seed
        repeat(intArrayOf(1, 1, 1, 2, 4, 8)[random.nextInt(6)]) {
            val at = random.nextInt(out.size + 1)
            val some = intArrayOf(1, 2, 8)[random.nextInt(3)]
            out = when (random.nextInt(6)) {
                0 -> flipped(out, at) { it xor (1 shl random.nextInt(8)) }
                1 -> out.copyOf(at) + fresh(some) + out.copyOfRange(at, out.size)
                2 -> out.copyOf(at) + out.copyOfRange(minOf(at + some, out.size), out.size)
                3 -> flipped(out, at) { intArrayOf(0, 1, 0x7F, 0x80, 0xFF)[random.nextInt(5)] }
                4 -> out + ByteArray(some * some) { if (some == 2) -1 else 0 }
                else -> out.copyOf(at) + fresh(random.nextInt(24))
            }
        }
        return out.copyOf(minOf(out.size, 4096))
    }

    private fun fresh(size: Int) = ByteArray(size).also(random::nextBytes)

    private fun flipped(data: ByteArray, at: Int, change: (Int) -> Int): ByteArray {
        if (data.isEmpty()) return data
        val index = minOf(at, data.size - 1)
        return data.clone().also { it[index] = change(it[index].toInt()).toByte() }
    }

    private companion object {
        const val MAX_PREDICTIVE_BYTES = 32
    }
}

private const val HANG_SECONDS = 20

/** `PayloadFuzz EXECUTIONS [SEED]`; exits with 1 where an input crashes or hangs the decoder, and prints it. */
internal fun main(arguments: Array<String>) {
    val executions = arguments[0].toLong()
    val fuzz = PayloadFuzz(arguments.getOrNull(1)?.toLong() ?: 1)
    val current = AtomicReference<Pair<ByteArray, Long>>()
    thread(isDaemon = true) {
        while (true) {
            Thread.sleep(1000)
            val (data, began) = current.get() ?: continue
            if (System.nanoTime() - began > HANG_SECONDS * 1e9) {
                System.err.println("\nover $HANG_SECONDS s: ${data.toHex()}")
                exitProcess(1)
            }
        }
    }
    val began = System.nanoTime()
    var slowest = 0L
    for (number in 1..executions) {
        val data = fuzz.input()
        val before = System.nanoTime()
        current.set(data to before)
        try {
            fuzz.run(data)
        } catch (error: Throwable) { // also OutOfMemoryError: the heap of this process is the bound
            System.err.println("\nexecution $number: ${data.toHex()}")
            error.printStackTrace()
            exitProcess(1)
        }
        slowest = maxOf(slowest, System.nanoTime() - before)
        if (number % 20_000 == 0L || number == executions) {
            val rate = number / ((System.nanoTime() - began) / 1e9)
            val most = slowest / 1_000_000
            System.err.print("\r$number executions, ${rate.toInt()} a second, ${fuzz.decoded} decoded, slowest $most ms")
        }
    }
    System.err.println()
    println("$executions executions: no crash, no hang, in ${Runtime.getRuntime().maxMemory() shr 20} MB of heap")
}
