/** Contract: what cloud and device must share. */
import { asciiJson, sha256, toHex, utf8 } from "./bytes.js";

const DEFAULT_ENDS = ["<|endoftext|>", "<|im_end|>"];

/** How messages become prompt ids: they give ordinary tokens only, whatever names of special tokens they have. */
export const CONTENTS = "plain";

/** The fields of a contract, as `bundle.json` has them. */
export interface ContractFields {
  vocab_size: number;
  vocab_hash: string;
  special: Readonly<Record<string, number>>;
  template_hash: string;
  ends?: readonly string[];
}

/** Identity of what cloud and device must share: vocabulary, special token ids, chat template. */
export class Contract {
  /** Upper bound of anchor ids: they are in [0, vocabSize) and none of `special`. */
  readonly vocabSize: number;
  /** Ids of special tokens by their text: those both sides use, and all below `vocabSize`. */
  readonly special: Readonly<Record<string, number>>;
  /** SHA-256 (hex) of the contract as ASCII JSON with sorted keys and no spaces. */
  readonly identity: string;
  /** Ids of the tokens that end an answer. */
  readonly eosIds: ReadonlySet<number>;
  /** Special ids below `vocabSize`, which no anchor can have. */
  readonly reserved: ReadonlySet<number>;

  constructor(readonly fields: ContractFields) {
    this.vocabSize = fields.vocab_size;
    this.special = fields.special;
    const ends = fields.ends ?? DEFAULT_ENDS;
    this.eosIds = new Set(ends.flatMap((name) => fields.special[name] ?? []));
    this.reserved = new Set(Object.values(fields.special).filter((id) => id < fields.vocab_size));
    this.identity = toHex(sha256(utf8(sorted(fields))));
  }

  /** The first byte of `identity` as 2 hex digits; payloads carry this byte. */
  get tag(): string {
    return this.identity.slice(0, 2);
  }

  toString(): string {
    const { vocab_hash, template_hash } = this.fields;
    return (
      `${this.identity.slice(0, 12)} (vocabulary ${vocab_hash.slice(0, 8)} of ${this.vocabSize}, ` +
      `template ${template_hash.slice(0, 8)})`
    );
  }
}

/** The contract's canonical JSON. */
function sorted(fields: ContractFields): string {
  const names = Object.keys(fields.special).sort(byCodePoint);
  const special = names.map((name) => `${asciiJson(name)}:${fields.special[name]}`);
  const ends = fields.ends ? `"ends":[${fields.ends.map(asciiJson).join(",")}],` : "";
  return (
    `{"contents":"${CONTENTS}",${ends}"special":{${special.join(",")}},"template_hash":${asciiJson(fields.template_hash)},` +
    `"vocab_hash":${asciiJson(fields.vocab_hash)},"vocab_size":${fields.vocab_size}}`
  );
}

/** Python's order of strings, which is another than JavaScript's beyond U+FFFF. */
function byCodePoint(one: string, other: string): number {
  const [a, b] = [[...one], [...other]];
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    const difference = (a[at]?.codePointAt(0) ?? 0) - (b[at]?.codePointAt(0) ?? 0);
    if (difference) return difference;
  }
  return a.length - b.length;
}
