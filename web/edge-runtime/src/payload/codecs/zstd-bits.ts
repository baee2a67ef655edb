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
    for (let index = 0; index < count; index++) value += this.byteAt(this.at + index) * 256 ** index;
    this.at += count;
    return value;
  }

  /** The next bytes as a slice of their own. */
  slice(count: number): ZstdBytes {
    if (count < 0 || count > this.left) refuseZstd("the end of the data");
    this.at += count;
    return new ZstdBytes(this.data, this.at - count, this.at);
  }

  private byteAt(index: number): number {
    return index < this.end ? (this.data[index] ?? 0) : refuseZstd("the end of the data");
  }
}

/** Reads bits from the first byte on, the lowest bit of each byte first; used by table descriptions. */
export class ForwardBitReader {
  private bit: number;

  constructor(private readonly input: ZstdBytes) {
    this.bit = 8 * input.at;
  }

  read(count: number): number {
    if (this.bit + count > 8 * this.input.end) refuseZstd("the end of a table");
    let value = 0;
    for (let index = 0; index < count; index++, this.bit++) {
      value |= (((this.input.data[this.bit >> 3] ?? 0) >> (this.bit & 7)) & 1) << index;
    }
    return value;
  }

  /** Returns bits to the input. */
  unread(count: number): void {
    this.bit -= count;
  }

  /** Advances the input to the first byte of which no bit was read. */
  close(): void {
    this.input.at = (this.bit + 7) >> 3;
  }
}

/** Reads bits from the end: downwards from below the highest set bit of the last byte. */
export class BackwardBitReader {
  /** Number of unread bits; negative once zeros have been read past the start. */
  left: number;

  constructor(private readonly input: ZstdBytes) {
    if (input.left === 0) refuseZstd("an empty stream of bits");
    const last = input.data[input.end - 1] ?? 0;
    if (last === 0) refuseZstd("a stream of bits without its end mark");
    this.left = 8 * input.left - (Math.clz32(last) - 24) - 1;
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
      value = (value << 1) | this.bitAt(index);
    }
    return value >>> 0;
  }

  private bitAt(index: number): number {
    return index < 0 ? 0 : ((this.input.data[this.input.at + (index >> 3)] ?? 0) >> (index & 7)) & 1;
  }
}
