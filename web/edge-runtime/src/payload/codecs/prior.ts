/**
 * The prior of the token model: the file `model.bin` of the payload format, parsed (payload/SPEC.md, "The model file").
 *
 * A part of the wire format: the check of every compact payload covers its hash.
 */
import { modelFile } from "#platform";
import { sha256 } from "../../bytes.js";
import { ByteReader } from "../byte-reader.js";

/** Context before the first position of a response. */
export const START = -1;

/** Pseudo-token after the last token of a response. */
export const END = -2;

/** Number of weights per feature, in the order of the file. */
const SIZES = {
  seen: 16,
  unseen: 16,
  rank: 18,
  promptCount: 5,
  answerCount: 4,
  scale: 4,
  source: 4,
  pair: 17,
  triple: 13,
  promptMatch: 19,
  answerMatch: 19,
  endPair: 17,
  endLine: 19,
  endAge: 7,
  escape: 10,
  escapeBits: 24,
};

/** Model weights per feature value, in 1/16 bit, except escapeBits, which are interval sizes. */
export type Weights = Readonly<Record<keyof typeof SIZES, Int16Array>>;

/** Followers of a context: token (or END) to class, in file order. */
export type Followers = ReadonlyMap<number, number>;

/** Statistics of one vocabulary's tokens; empty for a vocabulary without statistics. */
export interface Words {
  /** Frequency class of a token, 1 to 15, in order of id. */
  readonly classes: ReadonlyMap<number, number>;
  /** Followers by context token, and by the `contextKey` of two tokens. */
  readonly pairs: ReadonlyMap<number, Followers>;
  readonly triples: ReadonlyMap<number, Followers>;
  /** Token to the token it is compared as. */
  readonly alike: ReadonlyMap<number, number>;
  /** Tokens that end a line. */
  readonly breaks: ReadonlySet<number>;
}

const NO_WORDS: Words = {
  classes: new Map(),
  pairs: new Map(),
  triples: new Map(),
  alike: new Map(),
  breaks: new Set(),
};

/** Key of the context of two tokens, each START or above. */
export function contextKey(before: number, last: number): number {
  return (before + 1) * 2 ** 25 + last + 1;
}

export interface WeightedWords {
  readonly weights: Weights;
  readonly words: Words;
}

export class Prior {
  /** SHA-256 of the file. */
  readonly hash: Uint8Array;
  private readonly _plain: WeightedWords;
  private readonly _trained: WeightedWords;
  private readonly _vocabSize: number;

  constructor(data: Uint8Array) {
    this.hash = sha256(data);
    const reader = new ByteReader(Uint8Array.from(data));
    this._plain = { weights: readWeights(reader), words: NO_WORDS };
    const weights = readWeights(reader);
    this._vocabSize = reader.varint("vocabulary size", 1 << 24);
    this._trained = { weights, words: readWords(reader) };
  }

  /** Chosen by the vocabulary's size only: a wrong choice costs bytes, never correctness. */
  of(vocabSize: number): WeightedWords {
    return vocabSize === this._vocabSize ? this._trained : this._plain;
  }

  private static _loading: Promise<Prior> | undefined;

  /** The prior of this version of the format, loaded once. */
  static load(): Promise<Prior> {
    Prior._loading ??= modelFile().then(
      (data) => new Prior(data),
      (error: unknown) => {
        Prior._loading = undefined; // offline for a moment, say
        throw error;
      },
    );
    return Prior._loading;
  }
}

function readWeights(reader: ByteReader): Weights {
  const sets = Object.entries(SIZES).map(([name, size]) => {
    const view = new DataView(reader.take(2 * size, name).buffer);
    return [name, Int16Array.from({ length: size }, (_, at) => view.getInt16(2 * at, true))];
  });
  return Object.fromEntries(sets) as Weights;
}

function readWords(reader: ByteReader): Words {
  const lexicon: number[] = [];
  const classes = new Map<number, number>();
  const alike = new Map<number, number>();
  const breaks = new Set<number>();
  let token = -1;
  for (let left = reader.varint("lexicon", 1 << 16); left > 0; left--) {
    token += reader.varint("distance", 1 << 24);
    const flags = reader.byte("class");
    lexicon.push(token);
    if (flags & 15) classes.set(token, flags & 15);
    if (flags & 16) breaks.add(token);
    if (flags & 32) alike.set(token, lexicon[reader.varint("alike", 1 << 16)] ?? token);
  }
  const order = [END, ...lexicon];
  const contexts = [START, ...lexicon];
  const pairs = new Map<number, Followers>();
  for (const context of contexts) {
    const followers = readFollowers(reader, order);
    if (followers.size) pairs.set(context, followers);
  }
  const triples = new Map<number, Followers>();
  let first = 0;
  for (let left = reader.varint("triples", 1 << 16); left > 0; left--) {
    first += reader.varint("first", 1 << 16);
    const second = reader.varint("second", 1 << 16);
    triples.set(contextKey(contexts[first] ?? START, contexts[second] ?? START), readFollowers(reader, order));
  }
  return { classes, pairs, triples, alike, breaks };
}

function readFollowers(reader: ByteReader, order: readonly number[]): Followers {
  const result = new Map<number, number>();
  let at = 0;
  for (let left = reader.varint("followers", 1 << 12); left > 0; left--) {
    const entry = reader.varint("follower", 1 << 24);
    at += entry >> 4;
    result.set(order[at] ?? END, (entry & 15) + 1);
  }
  return result;
}
