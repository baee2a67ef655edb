/**
 * Integer arithmetic decoder.
 *
 * Not responsible for the meaning of the intervals. The state is an interval of a 56-bit number line that is extended by
 * a byte whenever it is narrower than 2^48; past the end of the data it reads zeros. BigInt, as a double has 53 bits.
 */
import { MalformedPayloadError } from "../../errors.js";

const TOP_BITS = 56;
const LOW = 1n << 48n;

export class RangeDecoder {
  private _at = TOP_BITS / 8;
  private _code = 0n;
  private _range = 1n << BigInt(TOP_BITS);

  constructor(private readonly _data: Uint8Array) {
    for (let index = 0; index < this._at; index++) this._code = (this._code << 8n) | this._byteAt(index);
  }

  get size(): number {
    return this._data.length;
  }

  /** Number of bytes not yet read; above 0 at the end of a message, the message is malformed. */
  get unread(): number {
    return Math.max(0, this._data.length - this._at);
  }

  /** The next value in [0, total); call `take` next, with the interval that contains it. */
  target(total: number): number {
    const target = this._code / (this._range / BigInt(total));
    if (target >= total) {
      throw new MalformedPayloadError("body", `a value below ${total} at byte ${this._at}`, `${target}: never written`);
    }
    return Number(target);
  }

  /** Consumes the interval [start, start + size) of a total. */
  take(start: number, size: number, total: number): void {
    const unit = this._range / BigInt(total);
    this._code -= BigInt(start) * unit;
    this._range = BigInt(size) * unit;
    while (this._range < LOW) {
      this._code = (this._code << 8n) | this._byteAt(this._at++);
      this._range <<= 8n;
    }
  }

  /** A uniformly distributed value in [0, total). */
  uniform(total: number): number {
    const value = this.target(total);
    this.take(value, 1, total);
    return value;
  }

  /** An index into `sizes`, with a probability proportional to its size. */
  choice(sizes: readonly number[]): number {
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const target = this.target(total);
    let start = 0;
    let index = 0;
    for (let size = sizes[0] ?? 0; target >= start + size; size = sizes[++index] ?? 0) start += size;
    this.take(start, sizes[index] ?? 0, total);
    return index;
  }

  /** A number >= 0: (bit length of number + 1) - 1 by `choice`, then the bits below the top one, uniformly. */
  number(sizes: readonly number[]): number {
    let code = 1;
    for (let left = this.choice(sizes); left > 0; ) {
      const step = Math.min(16, left);
      code = code * 2 ** step + this.uniform(2 ** step);
      left -= step;
    }
    return code - 1;
  }

  private _byteAt(index: number): bigint {
    return BigInt(this._data[index] ?? 0);
  }
}
