/**
 * Sums of a list of numbers >= 0 that grows and changes, each in steps of the logarithm of its size.
 *
 * Node n of the tree holds the sum of the (n and -n) numbers that end before index n.
 */
export class FenwickTree {
  private readonly numbers: number[] = [];
  private readonly nodes = [0];
  total = 0;

  get(index: number): number {
    return this.numbers[index] ?? 0;
  }

  /** Adds a number at the end. */
  add(number: number): void {
    const node = this.numbers.push(number);
    this.total += number;
    let sum = number;
    for (let step = 1; (node & step) === 0; step <<= 1) sum += this.nodes[node - step] ?? 0;
    this.nodes.push(sum);
  }

  set(index: number, number: number): void {
    const change = number - this.get(index);
    this.numbers[index] = number;
    this.total += change;
    for (let node = index + 1; node <= this.numbers.length; node += node & -node) {
      this.nodes[node] = (this.nodes[node] ?? 0) + change;
    }
  }

  /** The sum of the numbers before an index. */
  before(index: number): number {
    let sum = 0;
    for (let node = index; node > 0; node &= node - 1) sum += this.nodes[node] ?? 0;
    return sum;
  }

  /** The index whose number holds a target below the total: before(i) <= target < before(i + 1). */
  find(target: number): number {
    let index = 0;
    let left = target;
    for (let step = 1 << (31 - Math.clz32(this.numbers.length)); step > 0; step >>= 1) {
      const sum = this.nodes[index + step] ?? 0;
      if (index + step <= this.numbers.length && sum <= left) {
        index += step;
        left -= sum;
      }
    }
    return index;
  }

  /** An independent copy. */
  clone(): FenwickTree {
    const copy = new FenwickTree();
    copy.numbers.push(...this.numbers);
    copy.nodes.push(...this.nodes.slice(1));
    copy.total = this.total;
    return copy;
  }
}
