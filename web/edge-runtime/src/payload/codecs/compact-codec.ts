/**
 * Decoder of codec compact: the positions of the anchors and their tokens, arithmetic-coded.
 *
 * Responsible for the grammar of a body (payload/SPEC.md, "Body of compact"). Not responsible for token probabilities
 * (`TokenModel`). A delta lists only the positions that its base leaves free, numbered 0, 1, 2... among themselves; the
 * base's anchors serve as contexts.
 */
import { type AnchorSet, MAX_CANVAS } from "../../anchor-set.js";
import type { Bytes } from "../../bytes.js";
import type { Contract } from "../../contract.js";
import { AnchorRangeError, MalformedPayloadError } from "../../errors.js";
import type { DecodedBody } from "./decoded-body.js";
import { END, type Prior } from "./prior.js";
import { RangeDecoder } from "./range-decoder.js";
import { TokenModel } from "./token-model.js";

const MAX_VOCAB = (1 << 24) - 1;

// A body of n bytes holds at most FREE_TOKENS + TOKENS_PER_BYTE * n tokens: a bound on reading time.
const FREE_TOKENS = 64;
const TOKENS_PER_BYTE = 8;

const [WHOLE, RUNS] = [0, 1];
const SHAPE = [32, 16, 16];
const CANVASES = [512, 256, 1024, 128, 64];
const CANVAS = [40, 10, 4, 4, 4, 2];
const NUMBERS = [12, 12, 12, 12, 14, 14, 14, 14, 12, 8, 4, 2, 1, 1, 1, 1, 1];
const FIRST_GAP = [400, 8, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1];
const GAP = [24, 12, 8, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1];
const FIRST_RUN = [6, 4, 4, 4, 6, 24, 12, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1];
const RUN = [24, 10, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
const MORE = [
  [1, 63],
  [3, 2],
  [1, 3],
];

/** Decodes the number of positions of a canvas; `sizes`: of the usual ones, and of any other. */
export function decodeCanvas(decoder: RangeDecoder, sizes: readonly number[]): number {
  const usual = CANVASES[decoder.choice(sizes)];
  if (usual !== undefined) return usual;
  const canvas = decoder.number(NUMBERS) + 1;
  if (canvas > MAX_CANVAS) throw new AnchorRangeError("canvas", `at most ${MAX_CANVAS} positions`, canvas);
  return canvas;
}

/** Refuses bytes that do not change what a body of `count` coded items says. */
export function checkEnd(body: Bytes, decoder: RangeDecoder, count: number, free: number, perByte: number): void {
  const least = Math.ceil((count - free) / perByte);
  if (body.length > least && (decoder.unread > 0 || body[body.length - 1] === 0)) {
    const end = body.length - decoder.unread;
    throw new MalformedPayloadError("body", `its end after ${end} bytes`, `${body.length} bytes`);
  }
}

export class CompactCodec {
  private readonly _decoder: RangeDecoder;
  private readonly _model: TokenModel;
  private readonly _most: number;
  private _count = 0;
  private readonly _given: ReadonlyMap<number, number>;
  private readonly _order: readonly number[];
  private readonly _found: Map<number, number>;

  /** The position after the last token or base anchor that the token model has seen. */
  private _at = 0;
  private _passed = 0;

  private constructor(
    body: Bytes,
    prior: Prior,
    contract: Contract,
    promptIds: readonly number[],
    private readonly _base: AnchorSet | null,
  ) {
    this._decoder = new RangeDecoder(body);
    this._model = new TokenModel(prior.of(contract.vocabSize), contract.vocabSize, promptIds);
    this._most = FREE_TOKENS + TOKENS_PER_BYTE * body.length;
    this._given = _base?.byPosition ?? new Map<number, number>();
    this._order = _base?.positions ?? [];
    this._found = new Map(this._given);
  }

  static decode(
    body: Bytes,
    prior: Prior,
    contract: Contract,
    promptIds: readonly number[],
    base: AnchorSet | null,
  ): DecodedBody {
    if (!(contract.vocabSize >= 1 && contract.vocabSize <= MAX_VOCAB)) {
      throw new AnchorRangeError("vocabulary", `1 to ${MAX_VOCAB} tokens for codec compact`, contract.vocabSize);
    }
    return new CompactCodec(body, prior, contract, promptIds, base)._decode(body);
  }

  private _decode(body: Bytes): DecodedBody {
    const canvas = this._base?.canvas ?? decodeCanvas(this._decoder, CANVAS);
    const shape = this._decoder.choice(SHAPE);
    let length: number | null;
    if (shape === WHOLE) {
      length = this._whole(canvas);
    } else {
      this._runs(canvas);
      length = shape === RUNS ? (this._base?.length ?? null) : this._length(canvas);
    }
    checkEnd(body, this._decoder, this._count, FREE_TOKENS, TOKENS_PER_BYTE);
    return { anchors: this._found, canvas, length };
  }

  private _length(canvas: number): number {
    let last = -1;
    for (const position of this._found.keys()) last = Math.max(last, position);
    const length = last + 1 + this._decoder.number(NUMBERS);
    if (length > canvas) throw new AnchorRangeError("length", `at most the canvas of ${canvas} positions`, length);
    return length;
  }

  private _token(mayEnd = false): number {
    if (this._count >= this._most) {
      throw new MalformedPayloadError("body", `at most ${this._most} tokens in ${this._decoder.size} bytes`, "more");
    }
    this._count++;
    return this._model.decode(this._decoder, mayEnd);
  }

  /** Decodes every position up to an END, or up to the length where the base states it; returns the length. */
  private _whole(canvas: number): number {
    const known = this._base?.length ?? null;
    const last = this._order[this._order.length - 1] ?? -1;
    for (; this._at < (known ?? canvas); this._at++) {
      const anchor = this._given.get(this._at);
      if (anchor !== undefined) {
        this._model.push(anchor);
        continue;
      }
      const token = this._token(known === null && this._at > last);
      if (token === END) break;
      this._found.set(this._at, token);
    }
    return this._at;
  }

  /** Decodes runs of anchors over the positions that the base leaves free: more?, gap, size, tokens. */
  private _runs(canvas: number): void {
    const { _decoder: decoder } = this;
    let free: number[] | null = null;
    if (this._given.size) {
      free = [];
      for (let position = 0; position < canvas; position++) if (!this._given.has(position)) free.push(position);
    }
    const many = free?.length ?? canvas;
    let next = 0;
    for (let nth = 0; decoder.choice(MORE[Math.min(nth, 2)] ?? []) === 1; nth++) {
      const start = next + (nth > 0 ? 1 + decoder.number(GAP) : decoder.number(FIRST_GAP));
      const size = 1 + decoder.number(nth > 0 ? RUN : FIRST_RUN);
      if (start + size > many) {
        throw new AnchorRangeError("anchors", `at most ${many} free positions`, `${size} after ${start}`);
      }
      for (let index = start; index < start + size; index++) {
        const position = free?.[index] ?? index;
        this._advance(position);
        this._found.set(position, this._token());
        this._at = position + 1;
      }
      next = start + size;
    }
  }

  /** Advances the token model to a position, over gaps and the base's anchors. */
  private _advance(position: number): void {
    for (; this._passed < this._order.length; this._passed++) {
      const known = this._order[this._passed] ?? 0;
      if (known >= position) break;
      if (known < this._at) continue;
      if (known > this._at) this._model.gap();
      this._model.push(this._given.get(known) ?? 0);
      this._at = known + 1;
    }
    if (position > this._at) this._model.gap();
  }
}
