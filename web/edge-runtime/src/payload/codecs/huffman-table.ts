/** A Huffman code of at most 11 bits over bytes, as zstd has it. */
import { FseTable } from "./fse-table.js";
import { BackwardBitReader, refuseZstd, type ZstdBytes } from "./zstd-bits.js";

const MAX_LOG = 11;

export class HuffmanTable {
  private constructor(
    private readonly _log: number,
    private readonly _symbols: Uint8Array,
    private readonly _bits: Uint8Array,
  ) {}

  /** Decodes a whole stream into out[from until to]. */
  decode(input: ZstdBytes, out: Uint8Array, from: number, to: number): void {
    const stream = new BackwardBitReader(input);
    for (let index = from; index < to; index++) {
      const code = stream.peek(this._log);
      out[index] = this._symbols[code] ?? 0;
      stream.skip(this._bits[code] ?? 0);
      if (stream.left < 0) refuseZstd("a stream of literals that is too short");
    }
    if (stream.left !== 0) refuseZstd("a stream of literals that is too long");
  }

  static read(input: ZstdBytes): HuffmanTable {
    const header = input.byte();
    if (header < 128) return HuffmanTable._of(interleaved(input.slice(header)));
    const count = header - 127;
    const bytes = input.slice((count + 1) >> 1);
    const weights = Array.from(
      { length: count },
      (_, index) => ((bytes.data[bytes.at + (index >> 1)] ?? 0) >> (index & 1 ? 0 : 4)) & 15,
    );
    return HuffmanTable._of(weights);
  }

  /** Builds the table. The last symbol's weight is implicit: it completes the sum to a power of two. */
  private static _of(given: readonly number[]): HuffmanTable {
    const sum = given.reduce((total, weight) => total + (weight === 0 ? 0 : 2 ** (weight - 1)), 0);
    if (given.length > 255 || sum === 0 || given.some((weight) => weight > MAX_LOG)) {
      refuseZstd("weights of no Huffman code");
    }
    const log = 32 - Math.clz32(sum);
    const missing = 2 ** log - sum;
    if (log > MAX_LOG || missing & (missing - 1)) refuseZstd("weights of no Huffman code");
    const weights = [...given, 32 - Math.clz32(missing)];
    const symbols = new Uint8Array(1 << log);
    const bits = new Uint8Array(1 << log);
    let at = 0;
    for (let weight = 1; weight <= log; weight++) {
      weights.forEach((own, symbol) => {
        if (own !== weight) return;
        const size = 1 << (weight - 1);
        symbols.fill(symbol, at, at + size);
        bits.fill(log + 1 - weight, at, at + size);
        at += size;
      });
    }
    return new HuffmanTable(log, symbols, bits);
  }
}

/** FSE-coded weights: two interleaved states until the stream is exhausted. */
function interleaved(input: ZstdBytes): number[] {
  const weights: number[] = [];
  const table = FseTable.read(input, 6, 12);
  const stream = new BackwardBitReader(input);
  let state = table.start(stream);
  let other = table.start(stream);
  if (stream.left < 0) refuseZstd("weights that are too short");
  while (weights.length <= 254) {
    weights.push(table.symbol(state));
    const next = table.next(state, stream);
    if (stream.left < 0) {
      weights.push(table.symbol(other));
      return weights;
    }
    state = other;
    other = next;
  }
  return refuseZstd("more than 255 weights");
}
