/** Shared: state that the encoder and the decoder of a payload share. */
import type { AnchorSet } from "../anchor-set.js";
import type { Contract } from "../contract.js";

/** A decoded payload: the bytes and the anchors that a delta extends. */
export interface Base {
  readonly data: Uint8Array;
  readonly anchors: AnchorSet;
}

/** The tokenizer, as far as payloads need it. */
export interface TokenBytes {
  /** The bytes of one token; empty for an id without a token. */
  tokenBytes(id: number): Uint8Array;
  /** Token ids of a text. */
  encode(text: string): number[];
}

/** The edge model behind one prompt, to which payloads of codecs predictive and portable are bound. */
export interface Predictor {
  /** 32 bytes that identify everything that decides its numbers: weights, graph, precision, vocabulary. */
  readonly identity: Uint8Array;
  /** The ids before the answer. */
  readonly promptIds: readonly number[];
  /**
   * Natural logarithms of the probabilities of the token after `text`, which continues the prompt: V + 1 numbers, of
   * the V ordinary tokens by id and, last, of the end of the answer; -Infinity for what cannot occur. Valid until the
   * next call, and the reader may change it.
   */
  row(text: readonly number[]): Promise<Float64Array>;
}

/** All but the contract only where a codec needs it. */
export interface Shared {
  /** The contract of the edge model; a payload for another contract is refused. */
  readonly contract: Contract;
  /** Ids of the prompt in the chat template, up to the start of the answer; required where the header says so. */
  readonly promptIds?: readonly number[] | undefined;
  /** The tokenizer, for codec template-gzip. */
  readonly tokens?: TokenBytes | undefined;
  /** The payload that a delta extends. */
  readonly base?: Base | undefined;
  /** The edge model behind this prompt, for codecs that are bound to it; `promptIds` then are its own. */
  readonly predictor?: Predictor | undefined;
}
