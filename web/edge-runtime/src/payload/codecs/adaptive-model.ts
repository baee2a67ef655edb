/**
 * The adaptive model of codec predictive: frequency counts of bucket, rank code and anchor flag.
 *
 * Not responsible for rows or positions.
 */
import { FLAGS, MODES, MORE, RANKS, STABLE, STEP, UNRANKED } from "./initial-counts.js";
import type { RangeDecoder } from "./range-decoder.js";
import { BITS, BUCKETS, ESCAPE, LIKELIEST, type RankCode, TOP } from "./rank-code.js";

/** Bit length of the highest rank that can be coded. */
const MAX_RANK_BITS = 24;

export class AdaptiveModel {
  private readonly _modes = MODES.map((pair) => pair.map((sizes) => [...sizes]));
  private readonly _ranks = RANKS.map((group) =>
    group.map((sizes) => Array.from({ length: MAX_RANK_BITS + 1 }, (_, at) => sizes[at] ?? 1)),
  );
  private readonly _flags: number[][];
  private readonly _unranked = [...UNRANKED];
  private readonly _announced = [...MORE];
  private _afterMiss = 0;

  /** @param uncertain whether anchors are expected where the model is uncertain, rather than anywhere. */
  constructor(
    private readonly _decoder: RangeDecoder,
    uncertain: boolean,
  ) {
    this._flags = (FLAGS[uncertain ? 1 : 0] ?? []).map((sizes) => [...sizes]);
  }

  /** The confidence bucket: the reader's own where it is stable, else stated. */
  bucket(own: number): number {
    return this._decoder.choice(STABLE) === 0 ? own : this._decoder.uniform(BUCKETS);
  }

  /** The flag that announces another anchor. */
  more(): boolean {
    return this._read(this._announced) === 1;
  }

  /** The anchor flag of a token; `byRank`: its code is its rank among all tokens. */
  anchor(bucket: number, byRank: boolean): boolean {
    return this._read(byRank ? this._flags[bucket] : this._unranked) === 1;
  }

  /** The code of a token among `tokens` ids. */
  rankCode(bucket: number, tokens: number): RankCode {
    const mode = this._read(this._modes[bucket]?.[this._afterMiss]);
    this._afterMiss = mode === TOP ? 0 : 1;
    if (mode === TOP) return LIKELIEST;
    if (mode === ESCAPE) return { mode, residue: this._decoder.uniform(tokens), rank: 0 };
    const residue = this._decoder.uniform(1 << (BITS[mode] ?? 0));
    const size = this._read(this._ranks[mode - 1]?.[bucket >> 1]);
    if (size < 2) return { mode, residue, rank: size };
    const below = 2 ** (size - 1);
    return { mode, residue, rank: below + this._decoder.uniform(below) };
  }

  /** A value by an adaptive distribution, which learns it. */
  private _read(sizes: number[] = []): number {
    const value = this._decoder.choice(sizes);
    sizes[value] = (sizes[value] ?? 0) + STEP;
    return value;
  }
}
