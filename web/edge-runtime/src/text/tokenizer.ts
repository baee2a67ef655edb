/**
 * A BPE tokenizer, from its `tokenizer.json`. Added tokens are matched first; the rest is normalised to NFC, split by the
 * file's regular expression and encoded by byte-level BPE, or by SentencePiece's with a token for every byte (Gemma's),
 * whose symbols of the user are found before anything is merged.
 *
 * Any other setting in the file is refused by name on loading, so that ids are never silently wrong. Written here, as a
 * library for every kind of tokenizer is larger than the whole package may be.
 */
import { type Bytes, utf8 } from "../bytes.js";
import { BundleSchemaError } from "../errors.js";
import type { TokenBytes } from "../payload/shared.js";
import { bpe, MergeTable } from "./bpe.js";
import { bytesOf, CHARACTERS } from "./byte-alphabet.js";
import type { Piece } from "./chat-template.js";
import { KNOWN_SPLITS } from "./known-splits.js";
import type { Characters } from "./sentencepiece.js";
import { compileSplit } from "./split-regex.js";

const MAX_IDS = 2 ** 20;
const NO_BYTES: Bytes = new Uint8Array(0);

type Fields = Readonly<Record<string, unknown>>;

function refuse(expected: string, found: unknown): never {
  const remedy = "Use a model with a vocabulary of bytes";
  throw new BundleSchemaError("tokenizer", expected, found ?? "none", remedy);
}

function fields(value: unknown, where: string): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : refuse(`an object in ${where}`, value);
}

function list(value: unknown, where: string): readonly unknown[] {
  return Array.isArray(value) ? value : refuse(`a list in ${where}`, value);
}

function check(of: Fields, where: string, name: string, ...allowed: unknown[]): void {
  const found = of[name] ?? null;
  if (!allowed.includes(found)) refuse(`${where}.${name} of ${allowed.join(" or ")}`, found);
}

export class Tokenizer implements TokenBytes {
  /** Ids of special tokens, which are not part of an answer's text. */
  readonly specialIds: ReadonlySet<number>;
  /** Number of ids, including added tokens. */
  readonly size: number;

  private readonly _bytes = new Map<number, Bytes>();
  private readonly _addedIds = new Map<string, number>();
  private readonly _added = new Set<number>();
  private readonly _names: RegExp | null;
  private readonly _characters: Characters | null;
  private readonly _normalizes: boolean;
  private readonly _splits: RegExp[];
  /** Id of each byte; some vocabularies lack the bytes that no text of theirs had, and drop them. */
  private readonly _byteIds: readonly (number | undefined)[];
  private readonly _merges: MergeTable;

  /** Takes the parsed file; throws BundleSchemaError naming an unsupported setting. */
  static async open(value: unknown): Promise<Tokenizer> {
    const file = value as { model?: Fields } | null;
    return new Tokenizer(value, file?.model?.byte_fallback === true ? await import("./sentencepiece.js") : null);
  }

  /** As `open`, of a byte-level vocabulary where there are no `pieces`. */
  constructor(value: unknown, pieces: typeof import("./sentencepiece.js") | null = null) {
    const file = fields(value, "tokenizer.json");
    const model = fields(file.model, "model");
    check(model, "model", "type", "BPE");
    pieces?.require(file, model, refuse);
    this._normalizes = !pieces && (file.normalizer ?? null) !== null;
    this._splits = pieces ? [] : readSplits(fields(file.pre_tokenizer, "pre_tokenizer"));
    if (!pieces) {
      check(fields(file.decoder, "decoder"), "decoder", "type", "ByteLevel");
      if (this._normalizes) check(fields(file.normalizer, "normalizer"), "normalizer", "type", "NFC");
      for (const name of ["dropout", "unk_token"]) check(model, "model", name, null);
      for (const name of ["byte_fallback", "ignore_merges"]) check(model, "model", name, false, null);
    }
    for (const name of ["continuing_subword_prefix", "end_of_word_suffix"]) check(model, "model", name, null, "");
    const ids = new Map(Object.entries(fields(model.vocab, "vocab")).map(([token, id]) => [token, idOf(id, token)]));
    this._characters = pieces?.characters(ids) ?? null;
    const bytes = this._characters?.bytes ?? bytesOf;
    for (const [token, id] of ids) this._bytes.set(id, bytes(token) ?? refuse("a byte-level token", token));
    this._byteIds = this._characters?.byteIds ?? CHARACTERS.map((character) => ids.get(character));
    this._merges = readMerges(list(model.merges, "merges"), ids);

    this.specialIds = this._readAdded(list(file.added_tokens, "added_tokens"));
    this.size = this._bytes.size;
    this._names = anyOf([...this._addedIds.keys(), ...(this._characters?.symbols.keys() ?? [])]);
  }

  /** Token ids of a text; names of added tokens in it become these tokens. */
  encode(text: string): number[] {
    return this.encodePieces([{ text, isContent: false }]);
  }

  /**
   * Ids of texts in a row. Names of added tokens in a content are text; in other pieces they are found in each by
   * itself. What stands between two of them is encoded as one text.
   */
  encodePieces(pieces: readonly Piece[]): number[] {
    const out: number[] = [];
    let open = "";
    for (const { text, isContent } of pieces) {
      let at = 0;
      for (const match of this._names && !isContent ? text.matchAll(this._names) : []) {
        const id = this._addedIds.get(match[0]);
        if (id === undefined) continue; // a symbol is text, and found again in what surrounds it
        this._ordinary(open + text.slice(at, match.index), out);
        out.push(id);
        open = "";
        at = match.index + match[0].length;
      }
      open += text.slice(at);
    }
    this._ordinary(open, out);
    return out;
  }

  tokenBytes(id: number): Bytes {
    return this._bytes.get(id) ?? NO_BYTES;
  }

  private _ordinary(text: string, out: number[]): void {
    if (text === "") return;
    let pieces = [this._normalizes ? text.normalize("NFC") : text];
    for (const split of this._splits) pieces = pieces.flatMap((piece) => isolate(piece, split));
    const runs = this._characters?.runs(text, isolate, anyOf) ?? pieces.map((piece) => this._idsOf(utf8(piece)));
    for (const id of runs.flatMap((run) => bpe(run, this._merges))) {
      // Merges may end in an added token's id: a content has the ids of its bytes instead.
      out.push(...(this._added.has(id) ? this._idsOf(this.tokenBytes(id)) : [id]));
    }
  }

  private _idsOf(bytes: Bytes): number[] {
    return [...bytes].flatMap((byte) => this._byteIds[byte] ?? []);
  }

  /** Adds the added tokens; returns the ids of the special ones. */
  private _readAdded(tokens: readonly unknown[]): Set<number> {
    const special = new Set<number>();
    for (const each of tokens) {
      const token = fields(each, "added_tokens");
      const { content } = token;
      if (typeof content !== "string" || content === "") refuse("text in added_tokens.content", content);
      for (const name of ["single_word", "lstrip", "rstrip", "normalized"]) check(token, "added_tokens", name, false);
      const id = idOf(token.id, content);
      if (token.special !== true && this._characters?.takes(content, id)) continue;
      this._addedIds.set(content, id);
      this._added.add(id);
      this._bytes.set(id, utf8(content));
      if (token.special === true) special.add(id);
    }
    return special;
  }
}

/** An expression for any of these names, the longer of two with a common prefix first; null for none. */
function anyOf(names: string[]): RegExp | null {
  const quoted = names.sort((a, b) => b.length - a.length).map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  return quoted.length ? new RegExp(quoted.join("|"), "gu") : null;
}

/** Splits a text into the matches of a pattern and the parts between them. */
function isolate(text: string, split: RegExp): string[] {
  const result: string[] = [];
  let at = 0;
  for (const match of text.matchAll(split)) {
    if (match.index > at) result.push(text.slice(at, match.index));
    if (match[0]) result.push(match[0]);
    at = match.index + match[0].length;
  }
  if (at < text.length) result.push(text.slice(at));
  return result;
}

function readSplits(pre: Fields): RegExp[] {
  check(pre, "pre_tokenizer", "type", "Sequence");
  const steps = list(pre.pretokenizers, "pretokenizers").map((step) => fields(step, "pretokenizers"));
  const last = steps.at(-1) ?? refuse("a pre_tokenizer that ends in ByteLevel", "none");
  check(last, "pre_tokenizer", "type", "ByteLevel");
  check(last, "pre_tokenizer", "add_prefix_space", false);
  check(last, "pre_tokenizer", "use_regex", false);
  return steps.slice(0, -1).map((step) => {
    check(step, "pre_tokenizer", "type", "Split");
    check(step, "pre_tokenizer", "behavior", "Isolated");
    check(step, "pre_tokenizer", "invert", false);
    const pattern = fields(step.pattern, "pattern").Regex;
    if (typeof pattern !== "string" || !KNOWN_SPLITS.has(pattern)) refuse("a split that is known", pattern);
    return compileSplit(pattern);
  });
}

function readMerges(merges: readonly unknown[], ids: ReadonlyMap<string, number>): MergeTable {
  const table = new MergeTable();
  merges.forEach((each, rank) => {
    const pair: unknown = typeof each === "string" ? each.split(" ") : each;
    const [left, right] = Array.isArray(pair) && pair.length === 2 ? pair : refuse("a merge of two tokens", each);
    const known = [left, right, `${left}${right}`].map(
      (token) => ids.get(token) ?? refuse("merges of known tokens", each),
    );
    table.put(known[0] ?? 0, known[1] ?? 0, rank, known[2] ?? 0);
  });
  return table;
}

function idOf(value: unknown, token: string): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value < MAX_IDS) return value;
  return refuse(`an id of token ${token}`, value);
}
