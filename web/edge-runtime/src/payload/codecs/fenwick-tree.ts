/**
 * Sums of a list of numbers >= 0 that grows and changes, each in steps of the logarithm of its size.
 *
 * Node n of the tree holds the sum of the (n and -n) numbers that end before index n.
 */
export class FenwickTree {
  private readonly _numbers: number[] = [];
  private readonly _nodes = [0];
  total = 0;

  get(index: number): number {
    return this._numbers[index] ?? 0;
  }

  /** Adds a number at the end. */
  add(number: number): void {
    const node = this._numbers.push(number);
    this.total += number;
    let sum = number;
    for (let step = 1; (node & step) === 0; step <<= 1) sum += this._nodes[node - step] ?? 0;
    this._nodes.push(sum);
  }

  set(index: number, number: number): void {
    const change = number - this.get(index);
    this._numbers[index] = number;
    this.total += change;
    for (let node = index + 1; node <= this._numbers.length; node += node & -node) {
      this._nodes[node] = (this._nodes[node] ?? 0) + change;
    }
  }

  /** The sum of the numbers before an index. */
  before(index: number): number {
    let sum = 0;
    for (let node = index; node > 0; node &= node - 1) sum += this._nodes[node] ?? 0;
    return sum;
  }

  /** The index whose number holds a target below the total: before(i) <= target < before(i + 1). */
  find(target: number): number {
    let index = 0;
    let left = target;
    for (let step = 1 << (31 - Math.clz32(this._numbers.length)); step > 0; step >>= 1) {
      const sum = this._nodes[index + step] ?? 0;
      if (index + step <= this._numbers.length && sum <= left) {
        index += step;
        left -= sum;
      }
    }
    return index;
  }

  /** An independent copy. */
  clone(): FenwickTree {
    const copy = new FenwickTree();
    copy._numbers.push(...this._numbers);
    copy._nodes.push(...this._nodes.slice(1));
    copy.total = this.total;
    return copy;
  }
}
