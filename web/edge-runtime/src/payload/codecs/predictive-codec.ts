/**
 * Decoder of codec predictive: the answer from left to right, where every position holds the edge model's own token or an
 * anchor, coded by its rank among the model's predictions.
 *
 * Responsible for the grammar of a body (payload/SPEC.md, "Body of predictive"). Not responsible for the model
 * (`Predictor`), the codes of a token (`RankCode`) or the payload's check. Each position takes a pass of the model.
 */
import type { AnchorSet } from "../../anchor-set.js";
import { type Bytes, int32Bytes, sha256 } from "../../bytes.js";
import { MalformedPayloadError, UsageError } from "../../errors.js";
import type { Predictor } from "../shared.js";
import { AdaptiveModel } from "./adaptive-model.js";
import { checkEnd, decodeCanvas } from "./compact-codec.js";
import type { DecodedBody } from "./decoded-body.js";
import { RangeDecoder } from "./range-decoder.js";
import { argmax, confidenceBucket, RANK, TOP, tokenOf } from "./rank-code.js";

// A body of n bytes codes at most FREE_POSITIONS + POSITIONS_PER_BYTE * n positions: a bound on reading time.
const FREE_POSITIONS = 256;
const POSITIONS_PER_BYTE = 64;

const [WHOLE, UNCERTAIN, OPEN] = [0, 1, 3];
const SHAPE = [16, 40, 4, 4];
const CANVAS = [16, 12, 4, 24, 4, 4];

/** A token of a predictive payload; `logprob` is NaN where a base gives it. */
export interface DecodedToken {
  readonly position: number;
  readonly id: number;
  readonly anchor: boolean;
  readonly logprob: number;
}

export class PredictiveCodec {
  private readonly _decoder: RangeDecoder;
  private readonly _anchors: Map<number, number>;
  private readonly _seen: Set<number>;
  private readonly _text: number[] = [];
  private _count = 0;
  private _canvas = 0;
  private _length: number | null;

  constructor(
    private readonly _body: Bytes,
    private readonly _vocabSize: number,
    private readonly _predictor: Predictor,
    private readonly _base: AnchorSet | null,
  ) {
    this._decoder = new RangeDecoder(_body);
    this._anchors = new Map(_base?.byPosition);
    this._seen = new Set(_predictor.promptIds.filter((id) => id >= 0 && id < _vocabSize));
    this._length = _base?.length ?? null;
  }

  /** 32 bytes that change with every id of the text and with every anchor, once `tokens` has ended. */
  digest(): Bytes {
    const positions = [...this._anchors.keys()].sort((a, b) => a - b);
    const ids = positions.map((position) => this._anchors.get(position) ?? 0);
    return sha256(
      int32Bytes([this._canvas, this._length ?? -1, this._text.length, ...this._text, ...positions, ...ids]),
    );
  }

  /** Decodes the body, once. Throws MalformedPayloadError, AnchorRangeError, and what the predictor does. */
  async *tokens(): AsyncGenerator<DecodedToken, DecodedBody> {
    const given = this._base?.byPosition;
    const lastGiven = this._base?.positions.at(-1) ?? -1;
    this._canvas = this._base?.canvas ?? decodeCanvas(this._decoder, CANVAS);
    const shape = this._decoder.choice(SHAPE);
    const limit = this._length ?? this._canvas;
    const model = new AdaptiveModel(this._decoder, shape === UNCERTAIN);
    let announced = false; // in an open answer: another anchor follows
    while (this._text.length < limit) {
      const position = this._text.length;
      const known = given?.get(position);
      if (known !== undefined) {
        yield this._push(known, true, NaN);
        continue;
      }
      if (shape === OPEN && !announced) {
        announced = model.more();
        if (!announced) break;
      }
      const mayEnd = shape !== OPEN && this._length === null && position > lastGiven;
      const token = await this._position(model, shape, mayEnd);
      if (token === null) break;
      if (token.anchor) announced = false;
      yield token;
    }
    if (announced) throw new MalformedPayloadError("body", `another anchor below position ${limit}`, "none");
    if (shape !== OPEN) this._length = this._text.length;
    checkEnd(this._body, this._decoder, Math.max(this._count, FREE_POSITIONS), FREE_POSITIONS, POSITIONS_PER_BYTE);
    return { anchors: this._anchors, canvas: this._canvas, length: this._length };
  }

  /** Decodes one position that no base gives; null where the answer ends there. */
  private async _position(model: AdaptiveModel, shape: number, mayEnd: boolean): Promise<DecodedToken | null> {
    const most = FREE_POSITIONS + POSITIONS_PER_BYTE * this._body.length;
    if (++this._count > most) {
      throw new MalformedPayloadError("body", `at most ${most} positions in ${this._body.length} bytes`, "more");
    }
    const row = await this._predictor.row(this._text);
    if (row.length !== this._vocabSize + 1) {
      throw new UsageError("predictor", `rows of ${this._vocabSize} tokens and the end`, `${row.length} values`);
    }
    if (!mayEnd) row[this._vocabSize] = -Infinity;
    const bucket = model.bucket(confidenceBucket(row));
    const code = model.rankCode(bucket, row.length);
    const token = tokenOf(row, code, this._seen);
    if (token < 0) {
      throw new MalformedPayloadError("body", `the code of a candidate at position ${this._text.length}`, code);
    }
    if (token === this._vocabSize) return null;
    let anchor = true;
    if (shape !== WHOLE) {
      // A rank among all tokens says whether the model would have written this one; other codes do not.
      const byRank = code.mode === TOP || code.mode === RANK;
      const own = code.mode === TOP || (code.rank === 1 && argmax(row) === this._vocabSize);
      if (!byRank || own) anchor = model.anchor(bucket, byRank);
    }
    return this._push(token, anchor, row[token] ?? NaN);
  }

  private _push(id: number, anchor: boolean, logprob: number): DecodedToken {
    const position = this._text.length;
    if (anchor) this._anchors.set(position, id);
    this._text.push(id);
    this._seen.add(id);
    return { position, id, anchor, logprob };
  }
}
