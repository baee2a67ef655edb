package inversespec.edge.payload.codecs

import inversespec.edge.*

/**
 * Decoder of codec compact: the positions of the anchors and their tokens, arithmetic-coded.
 *
 * Responsible for the grammar of a body (payload/SPEC.md, "Body of compact"). Not responsible for token
 * probabilities ([TokenModel]). A delta lists only the positions that its base leaves free, numbered 0, 1, 2...
 * among themselves; the base's anchors serve as contexts.
 */
internal class CompactCodec private constructor(
    body: ByteArray,
    contract: Contract,
    promptIds: IntArray,
    private val base: AnchorSet?,
) {
    private val decoder = RangeDecoder(body)
    private val model = TokenModel(ModelFile.priorOf(contract.vocabSize), contract.vocabSize, promptIds)
    private val most = FREE_TOKENS + TOKENS_PER_BYTE * decoder.size
    private var count = 0
    private val baseAnchors = base?.byPosition.orEmpty()
    private val order = baseAnchors.keys.sorted()
    private val found = HashMap(baseAnchors)

    /** The position after the last token or base anchor that the token model has seen. */
    private var at = 0
    private var passed = 0

    private fun decode(body: ByteArray): DecodedBody {
        val canvas = base?.canvas ?: canvas(decoder, CANVAS)
        val length = when (decoder.choice(SHAPE)) {
            WHOLE -> whole(canvas)
            RUNS -> {
                runs(canvas)
                base?.length
            }
            else -> {
                runs(canvas)
                length(canvas)
            }
        }
        val least = Math.floorDiv(count - FREE_TOKENS + TOKENS_PER_BYTE - 1, TOKENS_PER_BYTE)
        if (body.size > least && (decoder.unread > 0 || body.lastOrNull() == 0.toByte())) {
            throw MalformedPayloadException(
                "body: expected its end after ${body.size - decoder.unread} bytes, found ${body.size}",
            )
        }
        return DecodedBody(found, canvas, length)
    }

    private fun length(canvas: Int): Int {
        val length = (found.keys.maxOrNull() ?: -1) + 1 + decoder.number(NUMBERS)
        if (length > canvas) {
            throw AnchorRangeException("length: expected at most the canvas of $canvas positions, found $length")
        }
        return length
    }

    private fun token(mayEnd: Boolean = false): Int {
        if (count >= most) {
            throw MalformedPayloadException(
                "body: expected at most $most tokens in ${decoder.size} bytes, found more",
            )
        }
        count++
        return model.decode(decoder, mayEnd)
    }

    /** Decodes every position up to an END, or up to the length where the base states it; returns the length. */
    private fun whole(canvas: Int): Int {
        val end = base?.length ?: canvas
        val last = order.lastOrNull() ?: -1
        while (at < end) {
            val known = baseAnchors[at]
            if (known != null) {
                model.push(known)
            } else {
                val token = token(mayEnd = base?.length == null && at > last)
                if (token == END) break
                found[at] = token
            }
            at++
        }
        return at
    }

    /** Decodes runs of anchors over the positions that the base leaves free: more?, gap, size, tokens. */
    private fun runs(canvas: Int) {
        val free = if (baseAnchors.isEmpty()) null else (0 until canvas).filter { it !in baseAnchors }
        val many = free?.size ?: canvas
        var next = 0
        var nth = 0
        while (decoder.choice(MORE[minOf(nth, 2)]) == 1) {
            val start = next + if (nth > 0) 1 + decoder.number(GAP) else decoder.number(FIRST_GAP)
            val size = 1 + decoder.number(if (nth > 0) RUN else FIRST_RUN)
            if (start + size > many) {
                throw AnchorRangeException("anchors: expected at most $many free positions, found $size after $start")
            }
            for (index in start until start + size) {
                val position = if (free == null) index else free[index]
                advance(position)
                found[position] = token()
                at = position + 1
            }
            next = start + size
            nth++
        }
    }

    /** Advances the token model to [position], over gaps and the base's anchors. */
    private fun advance(position: Int) {
        while (passed < order.size && order[passed] < position) {
            val known = order[passed++]
            if (known < at) continue
            if (known > at) model.gap()
            model.push(baseAnchors.getValue(known))
            at = known + 1
        }
        if (position > at) model.gap()
    }

    companion object {
        private const val MAX_VOCAB = (1 shl 24) - 1

        // A body of n bytes holds at most FREE_TOKENS + TOKENS_PER_BYTE * n tokens: a bound on reading time.
        private const val FREE_TOKENS = 64
        private const val TOKENS_PER_BYTE = 8

        private const val WHOLE = 0
        private const val RUNS = 1
        private val SHAPE = intArrayOf(32, 16, 16)
        private val CANVASES = intArrayOf(512, 256, 1024, 128, 64)
        private val CANVAS = intArrayOf(40, 10, 4, 4, 4, 2)
        private val NUMBERS = intArrayOf(12, 12, 12, 12, 14, 14, 14, 14, 12, 8, 4, 2, 1, 1, 1, 1, 1)
        private val FIRST_GAP = intArrayOf(400, 8, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        private val GAP = intArrayOf(24, 12, 8, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        private val FIRST_RUN = intArrayOf(6, 4, 4, 4, 6, 24, 12, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1)
        private val RUN = intArrayOf(24, 10, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
        private val MORE = arrayOf(intArrayOf(1, 63), intArrayOf(3, 2), intArrayOf(1, 3))

        /** Decodes the number of positions of a canvas; [sizes]: of the usual ones, and of any other. */
        fun canvas(decoder: RangeDecoder, sizes: IntArray): Int {
            val index = decoder.choice(sizes)
            if (index < CANVASES.size) return CANVASES[index]
            val canvas = decoder.number(NUMBERS) + 1
            if (canvas > MAX_CANVAS) {
                throw AnchorRangeException("canvas: expected at most $MAX_CANVAS positions, found $canvas")
            }
            return canvas
        }

        fun decode(body: ByteArray, contract: Contract, promptIds: IntArray, base: AnchorSet?): DecodedBody {
            if (contract.vocabSize !in 1..MAX_VOCAB) {
                throw AnchorRangeException(
                    "vocabulary: expected 1 to $MAX_VOCAB tokens for codec compact, found ${contract.vocabSize}",
                )
            }
            return CompactCodec(body, contract, promptIds, base).decode(body)
        }
    }
}
