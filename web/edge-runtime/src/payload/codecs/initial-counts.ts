/**
 * Counts that the distributions of a body of codec predictive begin with, in sixteenths of an occurrence: a part of the
 * wire format, equal to `payload/codecs/initial_counts.py`.
 */

/** Added to the count of a value that is coded. */
export const STEP = 16;

/** The reader's own bucket, the bucket stated. */
export const STABLE = [2047, 1];

// biome-ignore format: tables of the wire format, a bucket a line
/** By bucket, and whether the mode before was another than the likeliest. */
export const MODES = [
  [[18, 1, 1, 490, 1, 3], [17, 1, 1, 484, 1, 11]],
  [[143, 1, 1833, 31, 41, 1], [11, 1, 441, 2, 58, 1]],
  [[595, 1120, 145, 20, 161, 8], [147, 183, 47, 54, 80, 1]],
  [[315, 151, 26, 9, 7, 5], [313, 134, 1, 1, 63, 1]],
  [[1788, 145, 1, 38, 77, 1], [372, 55, 4, 1, 81, 1]],
  [[2042, 5, 1, 1, 1, 1], [2037, 11, 1, 1, 1, 1]],
];

// biome-ignore format: as above
/** By mode of rank and pair of buckets: the first bit lengths of a rank; the others begin with 1. */
export const RANKS = [
  [[1, 262, 208, 27, 12, 1, 1, 1], [1, 1024, 996, 26, 1, 1, 1, 1], [1, 299, 59, 101, 53, 1, 1, 1]],
  [[806, 608, 414, 220, 1, 1, 1, 1], [251, 247, 9, 5, 1, 1, 1, 1], [136, 279, 62, 33, 1, 1, 1, 1]],
  [[1433, 562, 29, 15, 10, 1, 1, 1], [345, 161, 2, 3, 1, 1, 1, 1], [354, 43, 2, 111, 1, 1, 1, 1]],
  [[336, 29, 72, 18, 2, 53, 1, 1], [134, 122, 165, 73, 8, 9, 1, 1], [120, 106, 217, 67, 1, 2, 1, 1]],
];

// biome-ignore format: as above
/** No anchor, an anchor: by shape (anchors anywhere, where the model is uncertain) and bucket. */
export const FLAGS = [
  [[8, 4], [8, 4], [8, 4], [8, 4], [8, 4], [8, 4]],
  [[1, 128], [1, 128], [1, 128], [1, 127], [2048, 1], [2048, 1]],
];

/** The same for tokens that are not coded by their rank among all, in every bucket. */
export const UNRANKED = [8, 504];

/** No more anchor, another one. */
export const MORE = [16, 48];
