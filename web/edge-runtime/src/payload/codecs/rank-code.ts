/**
 * A token named by its rank among a model's predictions: the one of this rank, by probability, among the ids of the mode
 * whose low bits are the residue. For ESCAPE the residue is the id itself.
 *
 * Not responsible for models or bytes. payload/SPEC.md, "Body of predictive", defines the codes.
 */
export interface RankCode {
  readonly mode: number;
  readonly residue: number;
  readonly rank: number;
}

// Modes: the likeliest id; by rank among all; among the ids with the same 3 or 6 low bits (2 and 3); among the tokens of
// prompt and answer; the id itself.
export const TOP = 0;
export const RANK = 1;
const RANK_SEEN = 4;
export const ESCAPE = 5;

/** Low bits that a code of each mode states. */
export const BITS = [0, 0, 3, 6, 0];

const ODDS_EDGES = [-3, -1.5, 0];
const MARGIN_EDGES = [2, 5];
export const BUCKETS = 6;

export const LIKELIEST: RankCode = { mode: TOP, residue: 0, rank: 0 };

/** Id of a row's largest value, the lowest id on ties. */
export function argmax(row: Float64Array): number {
  let best = 0;
  for (let id = 1; id < row.length; id++) if (at(row, id) > at(row, best)) best = id;
  return best;
}

/**
 * Confidence bucket of a row, 0 to BUCKETS - 1: by the log-odds of the likeliest token where these are below 0, else by
 * its margin over the second.
 */
export function confidenceBucket(row: Float64Array): number {
  const top = argmax(row);
  let second = -Infinity;
  for (let id = 0; id < row.length; id++) if (id !== top && at(row, id) > second) second = at(row, id);
  if (second === -Infinity) return BUCKETS - 1;
  const margin = at(row, top) - second;
  let sum = 0;
  for (let id = 0; id < row.length; id++) if (id !== top) sum += Math.exp(at(row, id) - second);
  const odds = margin - Math.log(sum);
  const bucket = ODDS_EDGES.filter((edge) => odds >= edge).length;
  return bucket < ODDS_EDGES.length ? bucket : bucket + MARGIN_EDGES.filter((edge) => margin >= edge).length;
}

/** The token of a code, or -1 where there is none. `seen`: the tokens of prompt and answer so far. */
export function tokenOf(row: Float64Array, code: RankCode, seen: ReadonlySet<number>): number {
  const isCandidate = (id: number) => Number.isFinite(at(row, id));
  if (code.mode === TOP || code.mode === ESCAPE) {
    const id = code.mode === TOP ? argmax(row) : code.residue;
    return isCandidate(id) ? id : -1;
  }
  let members: number[];
  if (code.mode === RANK_SEEN) {
    members = [...seen].sort((a, b) => a - b);
  } else {
    const step = 1 << (BITS[code.mode] ?? 0);
    members = Array.from(
      { length: Math.max(0, Math.ceil((row.length - code.residue) / step)) },
      (_, index) => code.residue + index * step,
    );
  }
  members = members.filter(isCandidate);
  if (code.rank >= members.length) return -1;
  // The value of that rank by sorting the values alone; among equal ones the lower id ranks first.
  const values = Float64Array.from(members, (id) => at(row, id)).sort();
  const value = values[values.length - 1 - code.rank] ?? NaN;
  let equal = code.rank - members.filter((id) => at(row, id) > value).length;
  return members.find((id) => at(row, id) === value && equal-- === 0) ?? -1;
}

function at(row: Float64Array, id: number): number {
  return row[id] ?? -Infinity;
}
