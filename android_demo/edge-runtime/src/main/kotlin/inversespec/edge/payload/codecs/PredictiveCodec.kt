package inversespec.edge.payload.codecs

import inversespec.edge.*

/**
 * Decoder of codec predictive: the answer from left to right, where every position holds the edge model's own token or
 * an anchor, coded by its rank among the model's predictions.
 *
 * Responsible for the grammar of a body (payload/SPEC.md, "Body of predictive"). Not responsible for the model
 * ([Predictor]), the codes of a token ([RankCode]) or the payload's check. Each position takes a pass of the model.
 *
 * @param onToken receives position, id, whether it is an anchor, and the log probability, NaN where a base gives it.
 */
internal class PredictiveCodec(
    private val body: ByteArray,
    private val vocabSize: Int,
    private val predictor: Predictor,
    private val base: AnchorSet?,
    private val onToken: (Int, Int, Boolean, Double) -> Unit,
) {
    private val decoder = RangeDecoder(body)
    private val anchors = HashMap(base?.byPosition.orEmpty())
    private val seen = predictor.promptIds.filterTo(HashSet()) { it in 0 until vocabSize }
    private val text = ArrayList<Int>()
    private var count = 0
    private var canvas = 0
    private var length = base?.length

    /** 32 bytes that change with every id of the text and with every anchor, once [decode] has returned. */
    val digest: ByteArray
        get() {
            val positions = anchors.keys.sorted()
            val numbers = listOf(canvas, length ?: -1, text.size) + text + positions +
                positions.map(anchors::getValue)
            return sha256(ByteArray(4 * numbers.size) { (numbers[it / 4] shr 8 * (it % 4)).toByte() })
        }

    /** Decodes the body, once. Throws MalformedPayloadException, AnchorRangeException, and what the predictor does. */
    fun decode(): DecodedBody {
        val given = base?.byPosition.orEmpty()
        val lastGiven = given.keys.maxOrNull() ?: -1
        canvas = base?.canvas ?: CompactCodec.canvas(decoder, CANVAS)
        val shape = decoder.choice(SHAPE)
        val limit = length ?: canvas
        val model = AdaptiveModel(decoder, uncertain = shape == UNCERTAIN)
        var announced = false // in an open answer: another anchor follows
        while (text.size < limit) {
            val position = text.size
            val known = given[position]
            if (known != null) {
                push(position, known, true, Double.NaN)
                continue
            }
            if (shape == OPEN && !announced) {
                announced = model.more()
                if (!announced) break
            }
            val mayEnd = shape != OPEN && length == null && position > lastGiven
            if (!position(model, shape, mayEnd)) break
            if (position in anchors) announced = false
        }
        if (announced) {
            throw MalformedPayloadException("body: expected another anchor below position $limit, found none")
        }
        if (shape != OPEN) length = text.size
        checkEnd()
        return DecodedBody(anchors, canvas, length)
    }

    /** Decodes one position that no base gives; false where the answer ends there. */
    private fun position(model: AdaptiveModel, shape: Int, mayEnd: Boolean): Boolean {
        if (++count > FREE_POSITIONS + POSITIONS_PER_BYTE * body.size) {
            throw MalformedPayloadException(
                "body: expected at most ${count - 1} positions in ${body.size} bytes, found more",
            )
        }
        val row = predictor.row(text)
        if (row.size != vocabSize + 1) {
            throw UsageException(
                "predictor: expected rows of $vocabSize tokens and the end, found ${row.size} values; " +
                    "use the model bundle of this contract",
            )
        }
        if (!mayEnd) row[vocabSize] = Double.NEGATIVE_INFINITY
        val bucket = model.bucket(RankCode.confidenceBucket(row))
        val code = model.rankCode(bucket, row.size)
        val token = RankCode.tokenOf(row, code, seen)
        if (token < 0) {
            throw MalformedPayloadException(
                "body: expected the code of a candidate at position ${text.size}, found $code, which has none",
            )
        }
        if (token == vocabSize) return false
        var anchor = true
        if (shape != WHOLE) {
            // A rank among all tokens says whether the model would have written this one; other codes do not.
            val byRank = code.mode == RankCode.TOP || code.mode == RankCode.RANK
            val own = code.mode == RankCode.TOP || (code.rank == 1 && RankCode.argmax(row) == vocabSize)
            if (!byRank || own) anchor = model.anchor(bucket, byRank)
        }
        if (anchor) anchors[text.size] = token
        push(text.size, token, anchor, row[token])
        return true
    }

    private fun push(position: Int, token: Int, anchor: Boolean, logProb: Double) {
        text.add(token)
        seen.add(token)
        onToken(position, token, anchor, logProb)
    }

    /** Refuses bytes that do not change what the body says. */
    private fun checkEnd() {
        val least = maxOf(0, Math.floorDiv(count - FREE_POSITIONS + POSITIONS_PER_BYTE - 1, POSITIONS_PER_BYTE))
        if (body.size > least && (decoder.unread > 0 || body.lastOrNull() == 0.toByte())) {
            throw MalformedPayloadException(
                "body: expected its end after ${body.size - decoder.unread} bytes, found ${body.size}",
            )
        }
    }

    private companion object {
        // A body of n bytes codes at most FREE_POSITIONS + POSITIONS_PER_BYTE * n positions: a bound on reading time.
        const val FREE_POSITIONS = 256
        const val POSITIONS_PER_BYTE = 64

        const val WHOLE = 0
        const val UNCERTAIN = 1
        const val OPEN = 3
        val SHAPE = intArrayOf(16, 40, 4, 4)
        val CANVAS = intArrayOf(16, 12, 4, 24, 4, 4)
    }
}
