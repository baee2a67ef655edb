/** A decoding table of finite state entropy (FSE): per state its symbol, and the bits and base of the next state. */
import { type BackwardBitReader, ForwardBitReader, refuseZstd, type ZstdBytes } from "./zstd-bits.js";

function bitLength(number: number): number {
  return 32 - Math.clz32(number);
}

export class FseTable {
  private constructor(
    private readonly _log: number,
    private readonly _symbols: Uint8Array,
    private readonly _bits: Uint8Array,
    private readonly _bases: Int32Array,
  ) {}

  start(stream: BackwardBitReader): number {
    return stream.read(this._log);
  }

  symbol(state: number): number {
    return this._symbols[state] ?? 0;
  }

  next(state: number, stream: BackwardBitReader): number {
    return (this._bases[state] ?? 0) + stream.read(this._bits[state] ?? 0);
  }

  /** A table of one symbol that takes no bits. */
  static single(symbol: number): FseTable {
    return new FseTable(0, Uint8Array.of(symbol), new Uint8Array(1), new Int32Array(1));
  }

  /** Builds a table from counts that add up to 2^log; -1 is a symbol with a probability below 1. */
  static of(log: number, counts: readonly number[]): FseTable {
    const size = 1 << log;
    const symbols = new Uint8Array(size);
    const next = counts.map((count) => Math.abs(count));
    let high = size;
    counts.forEach((count, symbol) => {
      if (count === -1) symbols[--high] = symbol;
    });
    const step = (size >> 1) + (size >> 3) + 3;
    let at = 0;
    counts.forEach((count, symbol) => {
      for (let left = count; left > 0; left--) {
        symbols[at] = symbol;
        do at = (at + step) & (size - 1);
        while (at >= high);
      }
    });
    const bits = new Uint8Array(size);
    const bases = new Int32Array(size);
    symbols.forEach((symbol, state) => {
      const count = next[symbol] ?? 0;
      next[symbol] = count + 1;
      const width = log - (bitLength(count) - 1);
      bits[state] = width;
      bases[state] = (count << width) - size;
    });
    return new FseTable(log, symbols, bits, bases);
  }

  /** Reads a table description. */
  static read(input: ZstdBytes, maxLog: number, maxSymbol: number): FseTable {
    const stream = new ForwardBitReader(input);
    const log = stream.read(4) + 5;
    if (log > maxLog) refuseZstd(`a table of ${log} bits, more than ${maxLog}`);
    const counts = new Array<number>(maxSymbol + 1).fill(0);
    let left = 1 << log;
    let symbol = 0;
    while (left > 0) {
      if (symbol > maxSymbol) refuseZstd(`a table of more than ${maxSymbol + 1} symbols`);
      const width = bitLength(left + 1);
      const low = (1 << (width - 1)) - 1;
      const short = (1 << width) - 1 - (left + 1);
      let value = stream.read(width);
      if ((value & low) < short) {
        stream.unread(1);
        value &= low;
      } else if (value > low) {
        value -= short;
      }
      const count = value - 1;
      counts[symbol++] = count;
      left -= Math.abs(count);
      if (count === 0) {
        let zeros: number;
        do {
          zeros = stream.read(2);
          symbol += zeros;
        } while (zeros === 3);
      }
    }
    if (left < 0) refuseZstd("a table with too large counts");
    stream.close();
    return FseTable.of(log, counts.slice(0, Math.min(symbol, maxSymbol + 1)));
  }
}
