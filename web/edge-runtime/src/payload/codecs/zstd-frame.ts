/**
 * Decompressor for one zstd frame (RFC 8878) without a dictionary, in memory; for small texts, not for speed.
 *
 * Not responsible for bounds: the caller checks `contentSize` and `windowSize` before `decompress`. Written here because
 * every runtime must refuse the same frames: the libraries of the field read frames with a wrong checksum, with bits left
 * over and with more data behind them.
 */
import type { Bytes } from "../../bytes.js";
import { FseTable } from "./fse-table.js";
import { HuffmanTable } from "./huffman-table.js";
import { xxHash64Low } from "./xxhash64.js";
import { BackwardBitReader, refuseZstd, ZstdBytes } from "./zstd-bits.js";

export { ZstdError } from "./zstd-bits.js";

const MAGIC = 0xfd2fb528;
const MAX_BLOCK = 1 << 17;

/** Counts given as [value, repetitions] pairs. */
function counts(...runs: [number, number][]): number[] {
  return runs.flatMap(([value, times]) => new Array<number>(times).fill(value));
}

/** The three kinds of codes in a sequence, in the order of their tables and states. */
const KINDS = [
  {
    shift: 6,
    maxLog: 9,
    maxSymbol: 35,
    standard: FseTable.of(6, counts([4, 1], [3, 1], [2, 11], [1, 3], [2, 9], [3, 1], [2, 1], [1, 5], [-1, 4])),
  },
  {
    shift: 4,
    maxLog: 8,
    maxSymbol: 31,
    standard: FseTable.of(5, counts([1, 6], [2, 3], [1, 15], [-1, 5])),
  },
  {
    shift: 2,
    maxLog: 9,
    maxSymbol: 52,
    standard: FseTable.of(6, counts([1, 1], [4, 1], [3, 1], [2, 6], [1, 37], [-1, 7])),
  },
];

const LENGTH_BITS = [...counts([0, 16]), 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const MATCH_BITS = [...counts([0, 32]), 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/** First length of each code, where the codes' ranges follow one another. */
function bases(bits: readonly number[], first: number): number[] {
  let next = first;
  return bits.map((width) => {
    next += 2 ** width;
    return next - 2 ** width;
  });
}

const LENGTH_BASE = bases(LENGTH_BITS, 0);
const MATCH_BASE = bases(MATCH_BITS, 3);

export class ZstdFrame {
  private readonly _input: ZstdBytes;

  /** Decompressed size as stated by the frame; null where it does not state one. */
  readonly contentSize: number | null;
  /** Maximum distance of a match, in bytes. */
  readonly windowSize: number;
  /** Id of the required dictionary; 0 for none. */
  readonly dictionary: number;

  private readonly _hasChecksum: boolean;
  private _out: Bytes = new Uint8Array(0);
  private _at = 0;
  private _huffman: HuffmanTable | undefined;
  private _tables: (FseTable | undefined)[] = [];
  private _recent: [number, number, number] = [1, 4, 8];

  constructor(data: Bytes) {
    const input = new ZstdBytes(data);
    this._input = input;
    if (input.integer(4) !== MAGIC) refuseZstd("another magic number");
    const flags = input.byte();
    if (flags & 8) refuseZstd("a reserved bit in the frame's header");
    const single = Boolean(flags & 32);
    this._hasChecksum = Boolean(flags & 4);
    let window = 0;
    if (!single) {
      const byte = input.byte();
      const base = 2 ** (10 + (byte >> 3));
      window = base + (base / 8) * (byte & 7);
    }
    this.dictionary = input.integer([0, 1, 2, 4][flags & 3] ?? 0);
    const sizeFlag = flags >> 6;
    if (sizeFlag === 0) this.contentSize = single ? input.integer(1) : null;
    else this.contentSize = input.integer(2 ** sizeFlag) + (sizeFlag === 1 ? 256 : 0);
    this.windowSize = single ? (this.contentSize ?? 0) : window;
  }

  /** Returns the content of the size stated; refuses data after the frame. */
  decompress(size: number): Bytes {
    const { _input: input } = this;
    this._out = new Uint8Array(size);
    const most = Math.min(this.windowSize, MAX_BLOCK);
    let header: number;
    do {
      header = input.integer(3);
      const blockSize = header >> 3;
      if (blockSize > most) refuseZstd(`a block of ${blockSize} bytes, more than ${most}`);
      const kind = (header >> 1) & 3;
      if (kind === 0) {
        this._copyLiterals(input.slice(blockSize), blockSize);
      } else if (kind === 1) {
        const byte = input.byte();
        this._requireRoom(blockSize);
        this._out.fill(byte, this._at, this._at + blockSize);
        this._at += blockSize;
      } else if (kind === 2) {
        this._decompressBlock(input.slice(blockSize), most);
      } else {
        refuseZstd("a reserved kind of block");
      }
    } while (!(header & 1));
    if (this._at !== size) refuseZstd(`${this._at} bytes in place of ${size}`);
    if (this._hasChecksum && input.integer(4) !== xxHash64Low(this._out)) refuseZstd("another checksum");
    if (input.left > 0) refuseZstd(`${input.left} bytes after its end`);
    return this._out;
  }

  /** Refuses to write more than the stated content size. */
  private _requireRoom(size: number): void {
    if (size > this._out.length - this._at) refuseZstd("more bytes than it states");
  }

  private _copyLiterals(source: ZstdBytes, size: number): void {
    this._requireRoom(size);
    const part = source.slice(size);
    this._out.set(part.data.subarray(part.at, part.end), this._at);
    this._at += size;
  }

  private _decompressBlock(block: ZstdBytes, most: number): void {
    const start = this._at;
    const literals = this._readLiterals(block, most);
    this._decodeSequences(block, literals);
    this._copyLiterals(literals, literals.left);
    if (this._at - start > most) refuseZstd(`a block of more than ${most} bytes`);
  }

  private _readLiterals(block: ZstdBytes, most: number): ZstdBytes {
    const first = block.byte();
    const kind = first & 3;
    const format = (first >> 2) & 3;
    if (kind < 2) {
      let size = first >> 3;
      if (format === 1) size = (first >> 4) | (block.byte() << 4);
      if (format === 3) size = (first >> 4) | (block.integer(2) << 4);
      if (size > most) refuseZstd(`${size} literals in a block`);
      return kind === 0 ? block.slice(size) : new ZstdBytes(new Uint8Array(size).fill(block.byte()));
    }
    const width = format < 2 ? 10 : format === 2 ? 14 : 18;
    const sizes = (first >> 4) + block.integer(format < 2 ? 2 : format + 1) * 16;
    const size = sizes % 2 ** width;
    if (size > most) refuseZstd(`${size} literals in a block`);
    const streams = block.slice(Math.floor(sizes / 2 ** width));
    if (kind === 2) this._huffman = HuffmanTable.read(streams);
    const table = this._huffman ?? refuseZstd("literals without a table");
    const result = new Uint8Array(size);
    if (format === 0) {
      table.decode(streams, result, 0, size);
    } else {
      const streamSizes = [streams.integer(2), streams.integer(2), streams.integer(2)];
      const quarter = (size + 3) >> 2;
      if (3 * quarter > size) refuseZstd("too few literals for four streams");
      streamSizes.forEach((bytes, index) => {
        table.decode(streams.slice(bytes), result, index * quarter, (index + 1) * quarter);
      });
      table.decode(streams, result, 3 * quarter, size);
    }
    return new ZstdBytes(result);
  }

  private _decodeSequences(block: ZstdBytes, literals: ZstdBytes): void {
    let count = block.byte();
    if (count === 0) {
      if (block.left > 0) refuseZstd("bytes after a block's literals");
      return;
    }
    if (count === 255) count = block.integer(2) + 0x7f00;
    else if (count >= 128) count = ((count - 128) << 8) + block.byte();
    const modes = block.byte();
    if (modes & 3) refuseZstd("reserved bits in a block");
    const read = KINDS.map(({ shift, maxLog, maxSymbol, standard }, index) => {
      const mode = (modes >> shift) & 3;
      if (mode === 0) return standard;
      if (mode === 2) return FseTable.read(block, maxLog, maxSymbol);
      if (mode === 3) return this._tables[index] ?? refuseZstd("a repeated table that was never given");
      const symbol = block.byte();
      return symbol > maxSymbol ? refuseZstd("an unknown code") : FseTable.single(symbol);
    });
    this._tables = read;
    const [lengths, offsets, matches] = read as [FseTable, FseTable, FseTable];
    const stream = new BackwardBitReader(block);
    let length = lengths.start(stream);
    let offset = offsets.start(stream);
    let match = matches.start(stream);
    for (let index = 0; index < count; index++) {
      const offsetCode = offsets.symbol(offset);
      const value = 2 ** offsetCode + stream.read(offsetCode);
      const matchCode = matches.symbol(match);
      const matchSize = (MATCH_BASE[matchCode] ?? 0) + stream.read(MATCH_BITS[matchCode] ?? 0);
      const lengthCode = lengths.symbol(length);
      const literalSize = (LENGTH_BASE[lengthCode] ?? 0) + stream.read(LENGTH_BITS[lengthCode] ?? 0);
      if (index < count - 1) {
        length = lengths.next(length, stream);
        match = matches.next(match, stream);
        offset = offsets.next(offset, stream);
      }
      if (stream.left < 0) refuseZstd("the end of the sequences");
      this._copyLiterals(literals, literalSize);
      this._copyMatch(this._distance(value, literalSize), matchSize);
    }
    if (stream.left !== 0) refuseZstd("bits after the sequences");
  }

  /** Distance of a match from its offset value: 1 to 3 refer to recent distances. */
  private _distance(value: number, literalSize: number): number {
    const [first, second, third] = this._recent;
    if (value > 3) {
      if (value - 3 > this._at) refuseZstd("a match before the beginning");
      this._recent = [value - 3, first, second];
    } else {
      const which = value - 1 + (literalSize === 0 ? 1 : 0);
      if (which === 1) this._recent = [second, first, third];
      if (which > 1) this._recent = [which === 3 ? first - 1 : third, first, second];
    }
    return this._recent[0];
  }

  private _copyMatch(distance: number, size: number): void {
    if (distance < 1 || distance > this._at || distance > this.windowSize) refuseZstd("a match before the beginning");
    this._requireRoom(size);
    const { _out: out } = this;
    for (let end = this._at + size; this._at < end; this._at++) out[this._at] = out[this._at - distance] ?? 0;
  }
}
