package inversespec.edge.payload.codecs

/**
 * The adaptive model of codec predictive: frequency counts of bucket, rank code and anchor flag, read from [decoder].
 *
 * Not responsible for rows or positions.
 *
 * @param uncertain whether anchors are expected where the model is uncertain, rather than anywhere.
 */
internal class AdaptiveModel(private val decoder: RangeDecoder, uncertain: Boolean) {
    private val modes = InitialCounts.MODES.map { pair -> pair.map(::Counts) }
    private val ranks = InitialCounts.RANKS.map { group ->
        group.map { sizes -> Counts(IntArray(MAX_RANK_BITS + 1) { sizes.getOrElse(it) { 1 } }) }
    }
    private val flags = InitialCounts.FLAGS[if (uncertain) 1 else 0].map(::Counts)
    private val unranked = Counts(InitialCounts.UNRANKED)
    private val more = Counts(InitialCounts.MORE)
    private var afterMiss = 0

    /** The confidence bucket: the reader's [own] where it is stable, else stated. */
    fun bucket(own: Int): Int =
        if (decoder.choice(InitialCounts.STABLE) == 0) own else decoder.uniform(RankCode.BUCKETS)

    /** The flag that announces another anchor. */
    fun more(): Boolean = more.read() == 1

    /** The anchor flag of a token; [byRank]: its code is its rank among all tokens. */
    fun anchor(bucket: Int, byRank: Boolean): Boolean = (if (byRank) flags[bucket] else unranked).read() == 1

    /** The code of a token among [tokens] ids. */
    fun rankCode(bucket: Int, tokens: Int): RankCode {
        val mode = modes[bucket][afterMiss].read()
        afterMiss = if (mode == RankCode.TOP) 0 else 1
        if (mode == RankCode.TOP) return RankCode.LIKELIEST
        if (mode == RankCode.ESCAPE) return RankCode(mode, decoder.uniform(tokens), 0)
        val residue = decoder.uniform(1 shl RankCode.BITS[mode])
        val size = ranks[mode - 1][bucket / 2].read()
        if (size < 2) return RankCode(mode, residue, size)
        val below = 1 shl (size - 1)
        return RankCode(mode, residue, below + decoder.uniform(below))
    }

    /** One adaptive distribution. */
    private inner class Counts(initial: IntArray) {
        private val sizes = initial.copyOf()

        fun read(): Int = decoder.choice(sizes).also { sizes[it] += InitialCounts.STEP }
    }

    private companion object {
        /** Bit length of the highest rank that can be coded. */
        const val MAX_RANK_BITS = 24
    }
}
