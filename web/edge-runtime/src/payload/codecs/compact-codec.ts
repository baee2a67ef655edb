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
  private readonly decoder: RangeDecoder;
  private readonly model: TokenModel;
  private readonly most: number;
  private count = 0;
  private readonly given: ReadonlyMap<number, number>;
  private readonly order: readonly number[];
  private readonly found: Map<number, number>;

  /** The position after the last token or base anchor that the token model has seen. */
  private at = 0;
  private passed = 0;

  private constructor(
    body: Bytes,
    prior: Prior,
    contract: Contract,
    promptIds: readonly number[],
    private readonly base: AnchorSet | null,
  ) {
    this.decoder = new RangeDecoder(body);
    this.model = new TokenModel(prior.of(contract.vocabSize), contract.vocabSize, promptIds);
    this.most = FREE_TOKENS + TOKENS_PER_BYTE * body.length;
    this.given = base?.byPosition ?? new Map<number, number>();
    this.order = base?.positions ?? [];
    this.found = new Map(this.given);
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
    return new CompactCodec(body, prior, contract, promptIds, base).decode(body);
  }

  private decode(body: Bytes): DecodedBody {
    const canvas = this.base?.canvas ?? decodeCanvas(this.decoder, CANVAS);
    const shape = this.decoder.choice(SHAPE);
    let length: number | null;
    if (shape === WHOLE) {
      length = this.whole(canvas);
    } else {
      this.runs(canvas);
      length = shape === RUNS ? (this.base?.length ?? null) : this.length(canvas);
    }
    checkEnd(body, this.decoder, this.count, FREE_TOKENS, TOKENS_PER_BYTE);
    return { anchors: this.found, canvas, length };
  }

  private length(canvas: number): number {
    let last = -1;
    for (const position of this.found.keys()) last = Math.max(last, position);
    const length = last + 1 + this.decoder.number(NUMBERS);
    if (length > canvas) throw new AnchorRangeError("length", `at most the canvas of ${canvas} positions`, length);
    return length;
  }

  private token(mayEnd = false): number {
    if (this.count >= this.most) {
      throw new MalformedPayloadError("body", `at most ${this.most} tokens in ${this.decoder.size} bytes`, "more");
    }
    this.count++;
    return this.model.decode(this.decoder, mayEnd);
  }

  /** Decodes every position up to an END, or up to the length where the base states it; returns the length. */
  private whole(canvas: number): number {
    const known = this.base?.length ?? null;
    const last = this.order[this.order.length - 1] ?? -1;
    for (; this.at < (known ?? canvas); this.at++) {
      const anchor = this.given.get(this.at);
      if (anchor !== undefined) {
        this.model.push(anchor);
        continue;
      }
      const token = this.token(known === null && this.at > last);
      if (token === END) break;
      this.found.set(this.at, token);
    }
    return this.at;
  }

  /** Decodes runs of anchors over the positions that the base leaves free: more?, gap, size, tokens. */
  private runs(canvas: number): void {
    const { decoder } = this;
    let free: number[] | null = null;
    if (this.given.size) {
      free = [];
      for (let position = 0; position < canvas; position++) if (!this.given.has(position)) free.push(position);
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
        this.advance(position);
        this.found.set(position, this.token());
        this.at = position + 1;
      }
      next = start + size;
    }
  }

  /** Advances the token model to a position, over gaps and the base's anchors. */
  private advance(position: number): void {
    for (; this.passed < this.order.length; this.passed++) {
      const known = this.order[this.passed] ?? 0;
      if (known >= position) break;
      if (known < this.at) continue;
      if (known > this.at) this.model.gap();
      this.model.push(this.given.get(known) ?? 0);
      this.at = known + 1;
    }
    if (position > this.at) this.model.gap();
  }
}
