package inversespec.edge.fuzz

import inversespec.edge.*
import inversespec.edge.payload.ToyTokens
import inversespec.edge.payload.codecs.MixPredictor
import inversespec.edge.payload.expectedCheck
import inversespec.edge.text.Json
import java.io.File

/** Payloads of every codec; `payload.py` says what the first byte means. */
internal class PayloadTarget : Target {
    private val document = Json.parse(File(repo, "tests/vectors/payload_vectors.json").readBytes()).row()
    private val tokens = ToyTokens((document["toy_pieces"] as List<*>).map { (it as String).hexToBytes() })
    private val toy = contract((document["toy_pieces"] as List<*>).size, 'a')
    private val qwen = contract(151_643, 'c')
    private val prompt = intArrayOf(3838, 374, 279, 6722, 315, 9625, 30)
    private val predictor = MixPredictor(toy.vocabSize, intArrayOf(1, 2))
    private val bases = listOf(toy, qwen).associateWith {
        Base("base".toByteArray(), AnchorSet(listOf(0, 1, 5), listOf(7, 8, 9), 64, it))
    }

    private fun contract(size: Int, name: Char) = Contract(
        size,
        name.toString().repeat(64),
        mapOf(Contract.END_OF_TEXT to size, Contract.IM_START to size + 1, Contract.IM_END to size + 2),
        "0".repeat(64),
    )

    private fun shared(how: Int): Shared {
        val delta = how and 128 != 0 && how and 16 != 0
        if (how and 28 == 28) {
            return Shared(toy, predictor.promptIds, tokens, bases[toy].takeIf { delta }, predictor)
        }
        val reader = if (how and 1 != 0) qwen else toy
        return Shared(reader, prompt.takeIf { how and 2 != 0 }, tokens, bases[reader].takeIf { delta })
    }

    private fun sealed(how: Int, data: ByteArray, shared: Shared): ByteArray {
        val codec = when (how and 24) {
            16 -> Codec.COMPACT
            24 -> Codec.PREDICTIVE
            else -> Codec.TEMPLATE_GZIP
        }
        val predictive = codec == Codec.PREDICTIVE
        val ids = if (how and 16 != 0) shared.promptIds else null
        val extras = when {
            how and 64 == 0 -> ByteArray(0)
            how and 32 != 0 -> data.copyOf(minOf(1, data.size))
            else -> byteArrayOf(((data.firstOrNull() ?: 0).toInt().and(0xFF) % 15 + 1).toByte())
        }
        val body = data.drop(1).take(if (predictive) MOST_PREDICTIVE else data.size).toByteArray()
        val delta = shared.base != null
        val flags = (if (ids != null) 4 else 0) + (if (delta) 2 else 0) + (if (extras.isNotEmpty()) 1 else 0)
        val tag = if (predictive) predictor.identity[0] else shared.contract.tag.hexToBytes()[0]
        val reference = shared.base?.let { sha256(it.data).copyOf(1) } ?: ByteArray(0)
        val start = byteArrayOf((0x40 or (codec.number shl 3) or flags).toByte(), tag, 0, 0)
        val bytes = start + reference + extras + body
        val check = expectedCheck(bytes, codec, shared.contract, ids, shared.base)
        bytes[2] = (check shr 8).toByte()
        bytes[3] = check.toByte()
        return bytes
    }

    override fun run(data: ByteArray) {
        if (data.isEmpty()) return
        val how = data[0].toInt() and 0xFF
        val rest = data.copyOfRange(1, data.size)
        val shared = shared(how)
        val bytes = if (how and 4 != 0) sealed(how, rest, shared) else rest
        Payloads.peek(bytes)
        Payloads.decode(bytes, shared)
    }

    private companion object {
        /** Bytes of a predictive body: each codes up to 64 positions, and the model takes longer with each. */
        const val MOST_PREDICTIVE = 12
    }
}
