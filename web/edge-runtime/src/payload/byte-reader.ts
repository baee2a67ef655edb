/** A bounds-checked cursor over bytes. */
import type { Bytes } from "../bytes.js";
import { MalformedPayloadError, TruncatedPayloadError } from "../errors.js";

const MAX_VARINT_BYTES = 5;

/** Every read names the field that it reads, for the error message. */
export class ByteReader {
  constructor(
    private readonly _data: Bytes,
    public at = 0,
  ) {}

  get left(): number {
    return this._data.length - this.at;
  }

  byte(field: string): number {
    return this.take(1, field)[0] ?? 0;
  }

  /** The next bytes; throws TruncatedPayloadError where fewer are left. */
  take(count: number, field: string): Bytes {
    if (count > this.left) {
      const remedy = "The payload was cut short: fetch it again";
      throw new TruncatedPayloadError(field, `${count} bytes at byte ${this.at}`, this.left, remedy);
    }
    this.at += count;
    return this._data.slice(this.at - count, this.at);
  }

  rest(): Bytes {
    return this.take(this.left, "the rest");
  }

  /** An unsigned LEB128 integer of at most `most`, in its shortest form. */
  varint(field: string, most: number): number {
    const start = this.at;
    let value = 0;
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = this.byte(field);
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte >= 0x80) continue;
      if (byte === 0 && index > 0) {
        throw new MalformedPayloadError(field, `the shortest form of an integer at byte ${start}`, "padding");
      }
      if (value > most) throw new MalformedPayloadError(field, `at most ${most} at byte ${start}`, value);
      return value;
    }
    throw new MalformedPayloadError(field, `an integer of at most ${MAX_VARINT_BYTES} bytes at byte ${start}`, "more");
  }
}
