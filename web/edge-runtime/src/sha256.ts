/**
 * SHA-256 (FIPS 180-4). Written here because `crypto.subtle` is asynchronous and for secure contexts only, and a library
 * takes a tenth of the package's size.
 */

const BLOCK_BYTES = 64;

const PRIMES = Array.from({ length: 310 }, (_, at) => at + 2).filter((number, _, all) =>
  all.every((other) => other * other > number || number % other),
);
/** The first 32 bits after the point: a double has 18 bits more than that of these roots. */
const fraction = (root: number) => ((root % 1) * 2 ** 32) | 0;
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));

const rotate = (word: number, by: number) => (word >>> by) | (word << (32 - by));

/** An incremental digest; `digest` is called once, at its end. */
export class Sha256 {
  private readonly _state = Int32Array.from(START);
  private readonly _words = new Int32Array(64);
  private readonly _block = new Uint8Array(BLOCK_BYTES);
  private readonly _view = new DataView(this._block.buffer);
  private _size = 0;

  update(data: Uint8Array): this {
    for (let from = 0; from < data.length; ) {
      const filled = this._size % BLOCK_BYTES;
      const part = data.subarray(from, from + BLOCK_BYTES - filled);
      this._block.set(part, filled);
      this._size += part.length;
      from += part.length;
      if (this._size % BLOCK_BYTES === 0) this._compress();
    }
    return this;
  }

  /** 32 bytes. */
  digest(): Uint8Array<ArrayBuffer> {
    const bits = 8 * this._size;
    // A one bit, zeros, and the number of bits in the last 8 bytes of a block.
    this.update(Uint8Array.of(0x80));
    this.update(new Uint8Array((2 * BLOCK_BYTES - 8 - (this._size % BLOCK_BYTES)) % BLOCK_BYTES));
    const last = new DataView(new ArrayBuffer(8));
    last.setUint32(0, bits / 2 ** 32);
    last.setUint32(4, bits);
    this.update(new Uint8Array(last.buffer));
    const out = new DataView(new ArrayBuffer(32));
    this._state.forEach((word, at) => {
      out.setInt32(4 * at, word);
    });
    return new Uint8Array(out.buffer);
  }

  private _compress(): void {
    const { _state: state, _words: words, _view: view } = this;
    const word = (at: number) => words[at] ?? 0;
    for (let at = 0; at < 64; at++) {
      const [before, after] = [word(at - 15), word(at - 2)];
      words[at] =
        at < 16
          ? view.getInt32(4 * at)
          : word(at - 16) +
            (rotate(before, 7) ^ rotate(before, 18) ^ (before >>> 3)) +
            word(at - 7) +
            (rotate(after, 17) ^ rotate(after, 19) ^ (after >>> 10));
    }
    let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
    for (let at = 0; at < 64; at++) {
      const one =
        h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + (ROUNDS[at] ?? 0) + word(at);
      const two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, at) => {
      state[at] = (state[at] ?? 0) + word;
    });
  }
}
