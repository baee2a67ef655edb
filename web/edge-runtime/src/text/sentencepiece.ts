/**
 * SentencePiece's BPE: a symbol is a character, with one sign for a space, or each byte of one that is no token. Loaded
 * with the first tokenizer that has it, so nothing is imported here: a page without one loads none of it.
 */
const SPACE = "\u2581";
const BYTE = /^<0x([0-9A-F]{2})>$/;
const DECODERS = [
  { type: "Replace", pattern: { String: SPACE }, content: " " },
  { type: "ByteFallback" },
  { type: "Fuse" },
];

type Bytes = Uint8Array<ArrayBuffer>;
type Fields = Readonly<Record<string, unknown>>;

type Isolate = (text: string, split: RegExp) => string[];
type AnyOf = (names: string[]) => RegExp | null;

/** How a text is written in a vocabulary before anything is merged, and the bytes of its entries. */
export interface Characters {
  bytes(token: string): Bytes;
  /** The ids of each part of a text that is merged by itself; a symbol of the user is such a part. */
  runs(text: string, isolate: Isolate, anyOf: AnyOf): number[][];
  /** Whether an added token that is not special is text, a symbol of the user: one that the vocabulary has too. */
  takes(content: string, id: number): boolean;
  readonly symbols: ReadonlyMap<string, number>;
  readonly byteIds: readonly number[];
}

/** The characters of a vocabulary with a token for every byte. */
export function characters(vocab: ReadonlyMap<string, number>): Characters {
  const encoder = new TextEncoder();
  const byteIds = Array.from(
    { length: 256 },
    (_, byte) => vocab.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`) ?? 0,
  );
  const symbols = new Map<string, number>();
  let names: RegExp | null | undefined;
  return {
    byteIds,
    symbols,
    takes(content, id) {
      const is = vocab.get(content) === id;
      if (is) symbols.set(content, id);
      return is;
    },
    bytes(token) {
      const byte = BYTE.exec(token)?.[1];
      return byte === undefined ? encoder.encode(token.replaceAll(SPACE, " ")) : Uint8Array.of(parseInt(byte, 16));
    },
    runs(text, isolate, anyOf) {
      names ??= anyOf([...symbols.keys()]);
      return (names ? isolate(text, names) : [text]).map((piece) => {
        const symbol = symbols.get(piece);
        if (symbol !== undefined) return [symbol];
        return [...piece.replaceAll(" ", SPACE)].flatMap(
          (character) => vocab.get(character) ?? [...encoder.encode(character)].map((byte) => byteIds[byte] ?? 0),
        );
      });
    },
  };
}

/**
 * Refuses what its files do not have: a space is one sign, nothing is put before a text, nothing is split, and every
 * byte has a token, or some text could not be written.
 */
export function require(file: Fields, model: Fields, refuse: (expected: string, found: unknown) => never): void {
  const same = (name: string, found: unknown, wanted: object) => {
    for (const [key, value] of Object.entries(wanted)) {
      const of = (found as Fields | null)?.[key] ?? null;
      if (JSON.stringify(of) !== JSON.stringify(value)) {
        refuse(`${name}.${key} of ${JSON.stringify(value)}`, JSON.stringify(of));
      }
    }
  };
  for (const name of ["dropout", "ignore_merges"]) if (model[name]) refuse(`no model.${name}`, model[name]);
  same("normalizer", file.normalizer, { type: "Replace", pattern: { String: " " }, content: SPACE });
  // At spaces, of which none is left.
  if (file.pre_tokenizer) same("pre_tokenizer", file.pre_tokenizer, { type: "Split", pattern: { String: " " } });
  same("decoder", file.decoder, { type: "Sequence", decoders: DECODERS });
  const bytes = Object.keys(model.vocab ?? {}).filter((token) => BYTE.test(token)).length;
  if (bytes !== 256) refuse("a token for each of 256 bytes", bytes);
}
