/**
 * Byte-pair encoding: starts from single symbols and merges the pair of the lowest rank, the leftmost first, until no
 * pair merges. Runs in O(n log n), as the length of a piece of text is not bounded.
 */

/** More than any id or offset in a piece; two of them and a rank fit a double's 53 bits. */
const WIDTH = 2 ** 24;
const GONE = -1;

/** Merges by pair of ids: rank and merged id in one number. */
export class MergeTable {
  private readonly _merges = new Map<number, number>();

  /** Adds a merge; for a repeated pair the later rank wins. */
  put(left: number, right: number, rank: number, id: number): void {
    this._merges.set(left * WIDTH + right, rank * WIDTH + id);
  }

  get(left: number, right: number): { rank: number; id: number } | null {
    const found = this._merges.get(left * WIDTH + right);
    return found === undefined ? null : { rank: Math.floor(found / WIDTH), id: found % WIDTH };
  }
}

/** The ids of a piece of text whose symbols have these ids. */
export function bpe(symbols: readonly number[], merges: MergeTable): number[] {
  const ids = [...symbols];
  const size = ids.length;
  const next = ids.map((_, at) => at + 1);
  const before = ids.map((_, at) => at - 1);
  const mergeAt = (at: number) => {
    const right = next[at] ?? size;
    return at < 0 || right >= size ? null : merges.get(ids[at] ?? GONE, ids[right] ?? GONE);
  };
  // The order of the numbers is the order of merging.
  const queue = new MinHeap();
  const offer = (at: number) => {
    const found = mergeAt(at);
    if (found) queue.push(found.rank * WIDTH + at);
  };
  for (let at = 0; at < size - 1; at++) offer(at);
  for (let top = queue.pop(); top !== undefined; top = queue.pop()) {
    const at = top % WIDTH;
    if (ids[at] === GONE) continue;
    const found = mergeAt(at);
    // The pair may have changed since it was queued.
    if (!found || found.rank !== Math.floor(top / WIDTH)) continue;
    const right = next[at] ?? size;
    ids[at] = found.id;
    ids[right] = GONE;
    const after = next[right] ?? size;
    next[at] = after;
    if (after < size) before[after] = at;
    offer(before[at] ?? -1);
    offer(at);
  }
  return ids.filter((id) => id !== GONE);
}

/** A binary heap of numbers, the smallest first. */
class MinHeap {
  private readonly _items: number[] = [];

  push(item: number): void {
    const { _items: items } = this;
    let at = items.push(item) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if ((items[up] ?? 0) <= item) break;
      items[at] = items[up] ?? 0;
      at = up;
    }
    items[at] = item;
  }

  pop(): number | undefined {
    const { _items: items } = this;
    const top = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return top;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= items.length) break;
      if ((items[down + 1] ?? Infinity) < (items[down] ?? 0)) down++;
      if ((items[down] ?? 0) >= last) break;
      items[at] = items[down] ?? 0;
      at = down;
    }
    items[at] = last;
    return top;
  }
}
