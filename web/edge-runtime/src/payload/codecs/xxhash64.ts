/** The low 32 bits of XXH64 with seed 0: the checksum that a zstd frame may end with. */
const [P1, P2, P3, P4, P5] = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
];

const low64 = (value: bigint) => BigInt.asUintN(64, value);
const rotate = (value: bigint, by: bigint) => low64(value << by) | (value >> (64n - by));
const round = (lane: bigint, input: bigint) => low64(rotate(low64(lane + input * P2), 31n) * P1);

export function xxHash64Low(data: Uint8Array): number {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  let at = 0;
  let hash = P5;
  if (data.length >= 32) {
    let lanes = [low64(P1 + P2), P2, 0n, low64(-P1)];
    for (; at + 32 <= data.length; at += 32) {
      lanes = lanes.map((lane, index) => round(lane, view.getBigUint64(at + 8 * index, true)));
    }
    hash = low64(lanes.reduce((sum, lane, index) => sum + rotate(lane, [1n, 7n, 12n, 18n][index] ?? 0n), 0n));
    for (const lane of lanes) hash = low64((hash ^ round(0n, lane)) * P1 + P4);
  }
  hash = low64(hash + BigInt(data.length));
  for (; at + 8 <= data.length; at += 8) {
    hash = low64(rotate(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * P1 + P4);
  }
  if (at + 4 <= data.length) {
    hash = low64(rotate(hash ^ low64(BigInt(view.getUint32(at, true)) * P1), 23n) * P2 + P3);
    at += 4;
  }
  for (; at < data.length; at++) hash = low64(rotate(hash ^ low64(BigInt(data[at] ?? 0) * P5), 11n) * P1);
  hash = low64((hash ^ (hash >> 33n)) * P2);
  hash = low64((hash ^ (hash >> 29n)) * P3);
  return Number(BigInt.asUintN(32, hash ^ (hash >> 32n)));
}
