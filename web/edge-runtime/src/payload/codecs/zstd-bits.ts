/** Cursors over the bytes and bits of a zstd frame. */
import type { Bytes } from "../../bytes.js";

/** Invalid zstd data; the message is what was found. Caught in `compression`. */
export class ZstdError extends Error {}

export function refuseZstd(message: string): never {
  throw new ZstdError(message);
}

/** A bounds-checked little-endian cursor over the bytes `at` until `end`. */
export class ZstdBytes {
  constructor(
    readonly data: Bytes,
    public at = 0,
    readonly end = data.length,
  ) {}

  get left(): number {
    return this.end - this.at;
  }

  byte(): number {
    return this.integer(1);
  }

  /** An unsigned integer of up to 8 bytes; beyond 2^53 its last digits are rounded. */
  integer(count: number): number {
    let value = 0;
    for (let index = 0; index < count; index++) value += this._byteAt(this.at + index) * 256 ** index;
    this.at += count;
    return value;
  }

  /** The next bytes as a slice of their own. */
  slice(count: number): ZstdBytes {
    if (count < 0 || count > this.left) refuseZstd("the end of the data");
    this.at += count;
    return new ZstdBytes(this.data, this.at - count, this.at);
  }

  private _byteAt(index: number): number {
    return index < this.end ? (this.data[index] ?? 0) : refuseZstd("the end of the data");
  }
}

/** Reads bits from the first byte on, the lowest bit of each byte first; used by table descriptions. */
export class ForwardBitReader {
  private _bit: number;

  constructor(private readonly _input: ZstdBytes) {
    this._bit = 8 * _input.at;
  }

  read(count: number): number {
    if (this._bit + count > 8 * this._input.end) refuseZstd("the end of a table");
    let value = 0;
    for (let index = 0; index < count; index++, this._bit++) {
      value |= (((this._input.data[this._bit >> 3] ?? 0) >> (this._bit & 7)) & 1) << index;
    }
    return value;
  }

  /** Returns bits to the input. */
  unread(count: number): void {
    this._bit -= count;
  }

  /** Advances the input to the first byte of which no bit was read. */
  close(): void {
    this._input.at = (this._bit + 7) >> 3;
  }
}

/** Reads bits from the end: downwards from below the highest set bit of the last byte. */
export class BackwardBitReader {
  /** Number of unread bits; negative once zeros have been read past the start. */
  left: number;

  constructor(private readonly _input: ZstdBytes) {
    if (_input.left === 0) refuseZstd("an empty stream of bits");
    const last = _input.data[_input.end - 1] ?? 0;
    if (last === 0) refuseZstd("a stream of bits without its end mark");
    this.left = 8 * _input.left - (Math.clz32(last) - 24) - 1;
  }

  read(count: number): number {
    const value = this.peek(count);
    this.left -= count;
    return value;
  }

  skip(count: number): void {
    this.left -= count;
  }

  /** The next bits, at most 32, as an unsigned integer. */
  peek(count: number): number {
    let value = 0;
    for (let index = this.left - 1; index >= this.left - count; index--) {
      value = (value << 1) | this._bitAt(index);
    }
    return value >>> 0;
  }

  private _bitAt(index: number): number {
    return index < 0 ? 0 : ((this._input.data[this._input.at + (index >> 3)] ?? 0) >> (index & 7)) & 1;
  }
}
