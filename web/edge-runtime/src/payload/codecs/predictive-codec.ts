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
  private readonly decoder: RangeDecoder;
  private readonly anchors: Map<number, number>;
  private readonly seen: Set<number>;
  private readonly text: number[] = [];
  private count = 0;
  private canvas = 0;
  private length: number | null;

  constructor(
    private readonly body: Bytes,
    private readonly vocabSize: number,
    private readonly predictor: Predictor,
    private readonly base: AnchorSet | null,
  ) {
    this.decoder = new RangeDecoder(body);
    this.anchors = new Map(base?.byPosition);
    this.seen = new Set(predictor.promptIds.filter((id) => id >= 0 && id < vocabSize));
    this.length = base?.length ?? null;
  }

  /** 32 bytes that change with every id of the text and with every anchor, once `tokens` has ended. */
  digest(): Bytes {
    const positions = [...this.anchors.keys()].sort((a, b) => a - b);
    const ids = positions.map((position) => this.anchors.get(position) ?? 0);
    return sha256(int32Bytes([this.canvas, this.length ?? -1, this.text.length, ...this.text, ...positions, ...ids]));
  }

  /** Decodes the body, once. Throws MalformedPayloadError, AnchorRangeError, and what the predictor does. */
  async *tokens(): AsyncGenerator<DecodedToken, DecodedBody> {
    const given = this.base?.byPosition;
    const lastGiven = this.base?.positions.at(-1) ?? -1;
    this.canvas = this.base?.canvas ?? decodeCanvas(this.decoder, CANVAS);
    const shape = this.decoder.choice(SHAPE);
    const limit = this.length ?? this.canvas;
    const model = new AdaptiveModel(this.decoder, shape === UNCERTAIN);
    let announced = false; // in an open answer: another anchor follows
    while (this.text.length < limit) {
      const position = this.text.length;
      const known = given?.get(position);
      if (known !== undefined) {
        yield this.push(known, true, NaN);
        continue;
      }
      if (shape === OPEN && !announced) {
        announced = model.more();
        if (!announced) break;
      }
      const mayEnd = shape !== OPEN && this.length === null && position > lastGiven;
      const token = await this.position(model, shape, mayEnd);
      if (token === null) break;
      if (token.anchor) announced = false;
      yield token;
    }
    if (announced) throw new MalformedPayloadError("body", `another anchor below position ${limit}`, "none");
    if (shape !== OPEN) this.length = this.text.length;
    checkEnd(this.body, this.decoder, Math.max(this.count, FREE_POSITIONS), FREE_POSITIONS, POSITIONS_PER_BYTE);
    return { anchors: this.anchors, canvas: this.canvas, length: this.length };
  }

  /** Decodes one position that no base gives; null where the answer ends there. */
  private async position(model: AdaptiveModel, shape: number, mayEnd: boolean): Promise<DecodedToken | null> {
    const most = FREE_POSITIONS + POSITIONS_PER_BYTE * this.body.length;
    if (++this.count > most) {
      throw new MalformedPayloadError("body", `at most ${most} positions in ${this.body.length} bytes`, "more");
    }
    const row = await this.predictor.row(this.text);
    if (row.length !== this.vocabSize + 1) {
      throw new UsageError("predictor", `rows of ${this.vocabSize} tokens and the end`, `${row.length} values`);
    }
    if (!mayEnd) row[this.vocabSize] = -Infinity;
    const bucket = model.bucket(confidenceBucket(row));
    const code = model.rankCode(bucket, row.length);
    const token = tokenOf(row, code, this.seen);
    if (token < 0) {
      throw new MalformedPayloadError("body", `the code of a candidate at position ${this.text.length}`, code);
    }
    if (token === this.vocabSize) return null;
    let anchor = true;
    if (shape !== WHOLE) {
      // A rank among all tokens says whether the model would have written this one; other codes do not.
      const byRank = code.mode === TOP || code.mode === RANK;
      const own = code.mode === TOP || (code.rank === 1 && argmax(row) === this.vocabSize);
      if (!byRank || own) anchor = model.anchor(bucket, byRank);
    }
    return this.push(token, anchor, row[token] ?? NaN);
  }

  private push(id: number, anchor: boolean, logprob: number): DecodedToken {
    const position = this.text.length;
    if (anchor) this.anchors.set(position, id);
    this.text.push(id);
    this.seen.add(id);
    return { position, id, anchor, logprob };
  }
}
