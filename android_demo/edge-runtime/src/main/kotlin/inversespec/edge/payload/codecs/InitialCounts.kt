package inversespec.edge.payload.codecs

/**
 * Counts that the distributions of a body of codec predictive begin with, in sixteenths of an occurrence: a part of
 * the wire format, equal to `payload/codecs/initial_counts.py`.
 */
internal object InitialCounts {
    /** Added to the count of a value that is coded. */
    const val STEP = 16

    /** The reader's own bucket, the bucket stated. */
    val STABLE = intArrayOf(2047, 1)

    /** By bucket, and whether the mode before was another than the likeliest. */
    val MODES = arrayOf(
        arrayOf(intArrayOf(18, 1, 1, 490, 1, 3), intArrayOf(17, 1, 1, 484, 1, 11)),
        arrayOf(intArrayOf(143, 1, 1833, 31, 41, 1), intArrayOf(11, 1, 441, 2, 58, 1)),
        arrayOf(intArrayOf(595, 1120, 145, 20, 161, 8), intArrayOf(147, 183, 47, 54, 80, 1)),
        arrayOf(intArrayOf(315, 151, 26, 9, 7, 5), intArrayOf(313, 134, 1, 1, 63, 1)),
        arrayOf(intArrayOf(1788, 145, 1, 38, 77, 1), intArrayOf(372, 55, 4, 1, 81, 1)),
        arrayOf(intArrayOf(2042, 5, 1, 1, 1, 1), intArrayOf(2037, 11, 1, 1, 1, 1)),
    )

    /** By mode of rank and pair of buckets: the first bit lengths of a rank; the others begin with 1. */
    val RANKS = arrayOf(
        arrayOf(
            intArrayOf(1, 262, 208, 27, 12, 1, 1, 1),
            intArrayOf(1, 1024, 996, 26, 1, 1, 1, 1),
            intArrayOf(1, 299, 59, 101, 53, 1, 1, 1),
        ),
        arrayOf(
            intArrayOf(806, 608, 414, 220, 1, 1, 1, 1),
            intArrayOf(251, 247, 9, 5, 1, 1, 1, 1),
            intArrayOf(136, 279, 62, 33, 1, 1, 1, 1),
        ),
        arrayOf(
            intArrayOf(1433, 562, 29, 15, 10, 1, 1, 1),
            intArrayOf(345, 161, 2, 3, 1, 1, 1, 1),
            intArrayOf(354, 43, 2, 111, 1, 1, 1, 1),
        ),
        arrayOf(
            intArrayOf(336, 29, 72, 18, 2, 53, 1, 1),
            intArrayOf(134, 122, 165, 73, 8, 9, 1, 1),
            intArrayOf(120, 106, 217, 67, 1, 2, 1, 1),
        ),
    )

    /** No anchor, an anchor: by shape (anchors anywhere, where the model is uncertain) and bucket. */
    val FLAGS = arrayOf(
        arrayOf(
            intArrayOf(8, 4), intArrayOf(8, 4), intArrayOf(8, 4),
            intArrayOf(8, 4), intArrayOf(8, 4), intArrayOf(8, 4),
        ),
        arrayOf(
            intArrayOf(1, 128), intArrayOf(1, 128), intArrayOf(1, 128),
            intArrayOf(1, 127), intArrayOf(2048, 1), intArrayOf(2048, 1),
        ),
    )

    /** The same for tokens that are not coded by their rank among all, in every bucket. */
    val UNRANKED = intArrayOf(8, 504)

    /** No more anchor, another one. */
    val MORE = intArrayOf(16, 48)
}
