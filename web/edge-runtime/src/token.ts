/** Tokens, events and statistics of an answer: what a reader of the API sees. */

/** Origin of a token: the prompt, the cloud's anchors, or the edge model. */
export type Source = "prompt" | "anchor" | "fill";

/** One token of the stream. */
export interface Token {
  readonly id: number;
  /** 0-based in the answer; prompt tokens have negative positions, the last one -1. */
  readonly position: number;
  readonly source: Source;
  /** Natural logarithm of P(token | all tokens before it) under the edge model; NaN where it was not computed. */
  readonly logprob: number;
  /**
   * The text that this token completes: empty inside a character of several tokens and for special tokens. The answer is
   * the concatenation of all pieces and `FillStats.tail`.
   */
  readonly text: string;
}

/**
 * Reason for the end of an answer: the payload states the length; more than 0.4 of the positions are anchored and the last
 * anchor has been emitted; the model ended it after the last anchor; or the limit of tokens, the canvas or the context.
 */
export type Stop = "length" | "last anchor" | "end token" | "limit";

/** The part of an anchor service in an answer. */
export interface ServiceReport {
  /** Sizes of the payloads received and decoded. */
  readonly payloadBytes: readonly number[];
  /** Why payloads of codec compact were asked for in place of predictive ones; else null. */
  readonly fellBack: string | null;
  /** Why payloads are missing; null where all arrived. */
  readonly failure: string | null;
  /** The device's doubt because of which the service was asked; null where it was asked at once, or not at all. */
  readonly doubtBefore: number | null;
}

/** Statistics of one answer. Durations are wall time in seconds. */
export interface FillStats {
  /** Number of model calls. */
  readonly passes: number;
  /** Number of anchors in the payload. */
  readonly anchors: number;
  /** Number of prompt tokens, with the chat template. */
  readonly promptTokens: number;
  /** Number of tokens of the answer. */
  readonly tokens: number;
  /** Duration of opening the model, its download included; the same for all its answers. */
  readonly loadSeconds: number;
  /** Duration until the end of the first pass, and of the rest, the reader's own time included. */
  readonly prefillSeconds: number;
  readonly fillSeconds: number;
  /** Geometric mean, 0 to 1, of the edge model's probabilities of the anchors; null where none was scored. */
  readonly agreement: number | null;
  /** How unsure the diffusion model was of the latest payload's anchors; null where unknown. */
  readonly doubt: number | null;
  /** Whether that doubt is from the bundle's limit on (`ModelInfo.notSureFrom`); null where either is unknown. */
  readonly notSure: boolean | null;
  /** Number of prompt tokens reused from the caches of earlier answers. */
  readonly reused: number;
  readonly stop: Stop;
  /** U+FFFD where the answer ends inside a character, else empty. */
  readonly tail: string;
  /** The part of the service; null for an answer without one. */
  readonly service: ServiceReport | null;
}

/** One event of an answer with a service, in order. */
export type AnswerEvent =
  | ({ readonly type: "token" } & Token)
  /** Takes back the tokens at `position` and after it: a later payload contradicts them. */
  | { readonly type: "retract"; readonly position: number }
  /** A payload has arrived and been decoded: its bytes, and the number of anchors known now. */
  | { readonly type: "payload"; readonly data: Uint8Array; readonly anchors: number; readonly doubt: number | null }
  /** Payloads of codec compact are asked for in place of predictive ones, which this device cannot decode. */
  | { readonly type: "compact"; readonly reason: string }
  /** The service cannot be reached, or stopped in the middle: this device goes on. `alone`: no payload has arrived. */
  | { readonly type: "failure"; readonly reason: string; readonly alone: boolean }
  /** The answer is complete. */
  | { readonly type: "done"; readonly stats: FillStats };
