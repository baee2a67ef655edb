/**
 * Adaptive model of the next token: the integer log-linear model of payload/SPEC.md, "The token model".
 *
 * Decodes one answer's tokens in ascending position and adapts to each.
 */
import { FenwickTree } from "./fenwick-tree.js";
import { contextKey, END, type Followers, START, type WeightedWords, type Weights, type Words } from "./prior.js";
import type { RangeDecoder } from "./range-decoder.js";

/** Pseudo-token for one or more positions without a token; no context extends across it. */
const GAP = -3;
const MAX_PROMPT_IDS = 4096;
const MAX_OCCURRENCES = 24;
const MAX_MATCH = 6;
const COUNT_CLASS = [0, 1, 2, 2, 3, 3, 3];
const NONE: Followers = new Map();

const MAX_SCORE = 384;
const FRACTIONS = [
  32768, 34219, 35734, 37316, 38968, 40693, 42495, 44376, 46341, 48393, 50535, 52773, 55109, 57549, 60097, 62757,
];
const MASS = Array.from({ length: MAX_SCORE + 1 }, (_, score) =>
  Math.floor(((FRACTIONS[score & 15] ?? 0) * 2 ** (score >> 4)) / 2 ** 15),
);

/** 2^(score / 16) as an integer, for scores clamped to 0..384. */
function mass(score: number): number {
  return MASS[Math.min(MAX_SCORE, Math.max(0, score))] ?? 0;
}

/** Number of significant bits; 0 for 0. */
function bitLength(number: number): number {
  return 32 - Math.clz32(number);
}

/**
 * A token with evidence from the context: classes of its pair and triple statistics, and of its matches in the prompt
 * and in the answer. For END, `promptMatch` is the best match in the prompt of a token that ends a line.
 */
interface Candidate {
  readonly id: number;
  readonly pair: number;
  readonly triple: number;
  readonly promptMatch: number;
  readonly answerMatch: number;
}

export class TokenModel {
  private readonly _weights: Weights;
  private readonly _words: Words;
  private readonly _tokens: number[] = [];
  private readonly _alike: number[] = [];
  private readonly _places = new Map<number, number[]>();
  private readonly _promptCount = new Map<number, number>();
  private readonly _answerCount = new Map<number, number>();
  private readonly _answerStart: number;
  private _coded = 0;

  // Slots: every token with a class, then the tokens of prompt and answer by first occurrence.
  private readonly _slotOf: Map<number, number>;
  private readonly _slots: number[];
  private readonly _bases: number[];
  private readonly _masses: FenwickTree;

  constructor(
    prior: WeightedWords,
    private readonly _vocabSize: number,
    promptIds: readonly number[],
  ) {
    this._weights = prior.weights;
    this._words = prior.words;
    const common = commonSlots(prior);
    this._slotOf = new Map(common.slotOf);
    this._slots = [...common.slots];
    this._bases = [...common.bases];
    this._masses = common.masses.clone();
    const used = promptIds.slice(-MAX_PROMPT_IDS);
    for (const token of used) {
      this._append(token);
      if (this._isCandidate(token)) this._promptCount.set(token, (this._promptCount.get(token) ?? 0) + 1);
    }
    for (const token of used) if (this._isCandidate(token)) this._updateSlot(token);
    this._answerStart = this._tokens.length;
    this._append(START);
  }

  /** Skips one or more positions without a token. */
  gap(): void {
    if (this._last !== GAP) this._append(GAP);
  }

  /** Adds a known token at the next position. */
  push(token: number): void {
    this._append(token);
    this._answerCount.set(token, (this._answerCount.get(token) ?? 0) + 1);
    this._updateSlot(token);
  }

  /** Decodes the token at the next position, or END where it may end. */
  decode(decoder: RangeDecoder, mayEnd: boolean): number {
    const { end, found, longest } = this._candidates();
    const candidates = mayEnd ? [end, ...found] : found;
    const sizes = candidates.map((each) => mass(this._score(each)));
    const hidden = candidates.flatMap((each) => this._slotOf.get(each.id) ?? []).sort((a, b) => a - b);
    const slotsAt = sizes.reduce((sum, size) => sum + size, 0);
    const hiddenMass = hidden.reduce((sum, slot) => sum + this._masses.get(slot), 0);
    const escapeAt = slotsAt + this._masses.total - hiddenMass;
    const escapeMass = mass(this._weights.escape[Math.min(longest, 4) + (this._last >= 0 ? 5 : 0)] ?? 0);
    const whole = escapeAt + escapeMass;
    const target = decoder.target(whole);
    let token: number;
    if (target < slotsAt) {
      let index = 0;
      let start = 0;
      for (let size = sizes[0] ?? 0; target >= start + size; size = sizes[++index] ?? 0) start += size;
      decoder.take(start, sizes[index] ?? 0, whole);
      token = candidates[index]?.id ?? END;
    } else if (target < escapeAt) {
      // What the hidden slots before the target would take.
      let skipped = 0;
      for (const slot of hidden) {
        if (this._masses.before(slot) > target - slotsAt + skipped) break;
        skipped += this._masses.get(slot);
      }
      const slot = this._masses.find(target - slotsAt + skipped);
      decoder.take(slotsAt + this._masses.before(slot) - skipped, this._masses.get(slot), whole);
      token = this._slots[slot] ?? 0;
    } else {
      decoder.take(escapeAt, escapeMass, whole);
      token = this._escaped(decoder);
    }
    this._coded++;
    if (token !== END) this.push(token);
    return token;
  }

  /** Decodes an arbitrary id: (bit length of id + 1) - 1, then its index among the ids of that length. */
  private _escaped(decoder: RangeDecoder): number {
    const bits = decoder.choice([...this._weights.escapeBits.subarray(0, bitLength(this._vocabSize))]);
    const first = 2 ** bits - 1;
    return first + decoder.uniform(Math.min(2 ** bits, this._vocabSize - first));
  }

  private get _last(): number {
    return this._tokens[this._tokens.length - 1] ?? START;
  }

  private _isCandidate(token: number): boolean {
    return token >= 0 && token < this._vocabSize;
  }

  private _append(token: number): void {
    const compared = this._words.alike.get(token) ?? token;
    const same = this._places.get(compared);
    if (same) same.push(this._tokens.length);
    else this._places.set(compared, [this._tokens.length]);
    this._tokens.push(token);
    this._alike.push(compared);
  }

  /** The score of a token without evidence from a context. */
  private _base(token: number): number {
    const inPrompt = this._promptCount.get(token) ?? 0;
    const inAnswer = this._answerCount.get(token) ?? 0;
    return baseScore(this._weights, this._words.classes.get(token) ?? 0, token, inPrompt, inAnswer);
  }

  /** Adds a slot for a token, or updates the mass of its slot. */
  private _updateSlot(token: number): void {
    const score = this._base(token);
    const slot = this._slotOf.get(token);
    if (slot === undefined) {
      this._slotOf.set(token, this._slots.length);
      this._slots.push(token);
      this._bases.push(score);
      this._masses.add(mass(score));
    } else {
      this._bases[slot] = score;
      this._masses.set(slot, mass(score));
    }
  }

  /** END, the tokens with evidence from the context, and the length of the longest match. */
  private _candidates(): { end: Candidate; found: Candidate[]; longest: number } {
    const last = this._last;
    const pairs = this._words.pairs.get(last) ?? NONE;
    const before = this._tokens[this._tokens.length - 2];
    const triples =
      (last >= 0 && before !== undefined && before >= START && this._words.triples.get(contextKey(before, last))) ||
      NONE;
    const prompt = new Matches();
    const answer = new Matches();
    if (last >= 0) this._match(prompt, answer);
    let line = 0;
    const found: Candidate[] = [];
    const ids = new Set([...pairs.keys(), ...triples.keys(), ...prompt.lengths.keys(), ...answer.lengths.keys()]);
    ids.delete(END);
    for (const id of ids) {
      const promptMatch = prompt.classOf(id);
      const [pair, triple] = [pairs.get(id) ?? 0, triples.get(id) ?? 0];
      found.push({ id, pair, triple, promptMatch, answerMatch: answer.classOf(id) });
      if (promptMatch > line && this._words.breaks.has(id)) line = promptMatch;
    }
    const [pair, triple] = [pairs.get(END) ?? 0, triples.get(END) ?? 0];
    const end = { id: END, pair, triple, promptMatch: line, answerMatch: 0 };
    return { end, found, longest: Math.max(prompt.longest, answer.longest) };
  }

  private _score(token: Candidate): number {
    const weight = (name: keyof Weights, index: number) => this._weights[name][index] ?? 0;
    if (token.id === END) {
      return (
        weight("endPair", token.pair) +
        weight("triple", token.triple) +
        weight("endLine", token.promptMatch) +
        weight("endAge", Math.min(6, bitLength(this._coded + 1)))
      );
    }
    const slot = this._slotOf.get(token.id);
    const base = slot === undefined ? this._base(token.id) : (this._bases[slot] ?? 0);
    const group = (token.pair | token.triple ? 1 : 0) + (token.promptMatch | token.answerMatch ? 2 : 0);
    return (
      base +
      ((base * weight("scale", group)) >> 4) +
      weight("source", group) +
      weight("pair", token.pair) +
      weight("triple", token.triple) +
      weight("promptMatch", token.promptMatch) +
      weight("answerMatch", token.answerMatch)
    );
  }

  private _match(prompt: Matches, answer: Matches): void {
    const { _tokens: tokens, _alike: alike } = this;
    const end = tokens.length - 1;
    const same = this._places.get(alike[end] ?? 0) ?? [];
    // The last occurrence is the end itself.
    for (let index = same.length - 2; index >= Math.max(0, same.length - 1 - MAX_OCCURRENCES); index--) {
      const place = same[index] ?? 0;
      const token = tokens[place + 1] ?? GAP;
      if (!this._isCandidate(token)) continue;
      let length = 1;
      while (length < MAX_MATCH && length <= place && (alike[end - length] ?? GAP) >= 0) {
        if (alike[place - length] !== alike[end - length]) break;
        length++;
      }
      (place < this._answerStart ? prompt : answer).offer(token, length);
    }
  }
}

/** Tokens that followed earlier occurrences of the current context, each with its longest matching context. */
class Matches {
  readonly lengths = new Map<number, number>();
  longest = 0;
  /** Number of tokens with the longest context. */
  private _ties = 0;

  offer(token: number, length: number): void {
    const known = this.lengths.get(token) ?? 0;
    if (length <= known) return;
    this.lengths.set(token, length);
    if (length > this.longest) {
      this.longest = length;
      this._ties = 1;
    } else if (length === this.longest) {
      this._ties++;
    }
  }

  /** Match class: 0 for none; else by length and rank: not the longest, one of the longest, the longest. */
  classOf(token: number): number {
    const length = this.lengths.get(token);
    if (length === undefined) return 0;
    return 1 + 3 * (length - 1) + (length < this.longest ? 0 : this._ties === 1 ? 2 : 1);
  }
}

function baseScore(weights: Weights, known: number, token: number, inPrompt: number, inAnswer: number): number {
  return (
    ((inPrompt > 0 || inAnswer > 0 ? weights.seen : weights.unseen)[known] ?? 0) +
    (weights.rank[known > 0 ? 0 : Math.min(17, bitLength(token + 1))] ?? 0) +
    (weights.promptCount[COUNT_CLASS[inPrompt] ?? 4] ?? 0) +
    (weights.answerCount[Math.min(3, inAnswer)] ?? 0)
  );
}

interface Slots {
  readonly slotOf: ReadonlyMap<number, number>;
  readonly slots: readonly number[];
  readonly bases: readonly number[];
  readonly masses: FenwickTree;
}

const COMMON = new WeakMap<WeightedWords, Slots>();

/** The slots that every payload starts from, computed once. */
function commonSlots(prior: WeightedWords): Slots {
  let found = COMMON.get(prior);
  if (!found) {
    const slots = [...prior.words.classes.keys()];
    const bases = [...prior.words.classes].map(([token, known]) => baseScore(prior.weights, known, token, 0, 0));
    const masses = new FenwickTree();
    for (const score of bases) masses.add(mass(score));
    found = { slotOf: new Map(slots.map((token, at) => [token, at])), slots, bases, masses };
    COMMON.set(prior, found);
  }
  return found;
}
