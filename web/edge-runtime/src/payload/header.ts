/** Header and optional fields of a payload, as `peek` returns them. */

/** Encoding of a payload's body. */
export type Codec = "template-gzip" | "compact" | "predictive" | "portable";

/** Codecs by their number in the header. */
export const CODECS: ReadonlyMap<number, Codec> = new Map([
  [0, "template-gzip"],
  [2, "compact"],
  [3, "predictive"],
  [4, "portable"],
]);

/** Whether a payload of a codec is for one model in float32 activations and no other. */
export function isBound(codec: Codec | undefined): boolean {
  return codec === "predictive" || codec === "portable";
}

/** Optional fields of a payload. */
export interface Extras {
  /** The user's prompt as text. */
  readonly prompt: string | null;
  /** Denoising steps run, of `totalSteps` planned; 0 of 0 where unknown. */
  readonly step: number;
  readonly totalSteps: number;
  /** Confidence of the diffusion model, 0 (lowest) to 3 (highest), per anchor in order of positions; or empty. */
  readonly confidence: readonly number[];
}

export const NO_EXTRAS: Extras = { prompt: null, step: 0, totalSteps: 0, confidence: [] };

export interface Header {
  readonly version: number;
  readonly codec: Codec;
  /** 2 hex digits: the start of the contract's identity; of codecs bound to a model, of its fingerprint. */
  readonly tag: string;
  readonly needsPrompt: boolean;
  /** For a delta, the reference of the payload that it extends, as 2 hex digits; else null. */
  readonly baseRef: string | null;
  readonly extras: Extras;
  /** Bytes of the payload, and of its body, which holds the anchors. */
  readonly size: number;
  readonly bodyBytes: number;
}

/** The probability that each confidence level stands for: the middle of its range. */
const MIDDLES = [0.25, 0.65, 0.875, 0.975];

/**
 * How unsure the diffusion model was: one minus the mean probability of its anchors, 0.025 to 0.75. Null where the
 * payload does not say, which is not the same as no doubt.
 */
export function doubt(confidence: readonly number[]): number | null {
  if (confidence.length === 0) return null;
  return 1 - confidence.reduce((sum, level) => sum + (MIDDLES[level] ?? 0), 0) / confidence.length;
}
