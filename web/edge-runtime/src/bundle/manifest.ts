/** The parsed and validated content of `bundle.json`. Not responsible for the files that it lists. */
import { asciiJson, type Bytes, sha256, strictUtf8, utf8 } from "../bytes.js";
import { CONTENTS, Contract } from "../contract.js";
import { BundleSchemaError, BundleVariantError } from "../errors.js";

export const MANIFEST = "bundle.json";
export const TOKENIZER = "tokenizer.json";
export const TEMPLATE = "chat_template.json";

/** Maximum size of a manifest in bytes; a usual one has a few kilobytes. */
export const MAX_MANIFEST_BYTES = 4 << 20;

const SCHEMA = 1;
const DEFAULT_ENDS = ["<|endoftext|>", "<|im_end|>"];

/** Size in bytes and SHA-256 in hex of a file. */
export interface FileRecord {
  readonly size: number;
  readonly sha256: string;
}

/** Dimensions of a model, as far as the engine needs them. */
export interface ModelShape {
  readonly id: string;
  readonly layers: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
}

/**
 * A variant of the model: its ONNX file, relative to the bundle, and the records of graphs and weights. The portable graph
 * is the one whose logits agree across processors; a bundle of an earlier version has none.
 */
export interface Variant {
  readonly graph: string;
  readonly portable: string | null;
  readonly files: ReadonlyMap<string, FileRecord>;
}

function fail(expected: string, found: unknown, remedy = "Copy the bundle again"): never {
  throw new BundleSchemaError(MANIFEST, expected, found ?? "none", remedy);
}

/** A JSON object of the manifest, with its path for error messages. */
class Section {
  private readonly _map: ReadonlyMap<string, unknown>;

  constructor(
    value: unknown,
    private readonly _name = "",
  ) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      fail(`an object${_name && ` in ${_name}`}`, value);
    }
    this._map = new Map(Object.entries(value));
  }

  get names(): string[] {
    return [...this._map.keys()];
  }

  any(field: string): unknown {
    return this._map.get(field);
  }

  section(field: string): Section {
    return new Section(this.any(field), this._label(field));
  }

  text(field: string): string {
    const found = this.any(field);
    return typeof found === "string" ? found : fail(`text in ${this._label(field)}`, found);
  }

  /** Bounds are several times the sizes of any published model: files of strangers state them. */
  whole(field: string, least = 0, most = 2 ** 32): number {
    const found = this.any(field);
    const fits = typeof found === "number" && Number.isInteger(found) && found >= least && found <= most;
    return fits ? found : fail(`a whole number of ${least} to ${most} in ${this._label(field)}`, found);
  }

  /** A number from 0 to 1; null where there is none. */
  share(field: string): number | null {
    const found = this.any(field) ?? null;
    const fits = found === null || (typeof found === "number" && found >= 0 && found <= 1);
    return fits ? (found as number | null) : fail(`a number from 0 to 1 in ${this._label(field)}`, found);
  }

  private _label(field: string): string {
    return this._name ? `${this._name}.${field}` : field;
  }
}

export class Manifest {
  readonly model: ModelShape;
  readonly context: number;
  readonly contract: Contract;
  readonly defaultVariant: string;
  /** The doubt from which on an answer is better not shown, as measured with this bundle's cloud model; null where not. */
  readonly notSureFrom: number | null;
  /** The device's doubt above which the cloud is to be asked, as measured with it; null where not. */
  readonly askFrom: number | null;
  readonly variants: ReadonlyMap<string, Variant>;
  /** Files that every variant needs. */
  readonly files: ReadonlyMap<string, FileRecord>;

  constructor(data: Bytes) {
    if (data.length > MAX_MANIFEST_BYTES) fail(`at most ${MAX_MANIFEST_BYTES} bytes`, data.length);
    let value: unknown;
    try {
      value = JSON.parse(strictUtf8(data) ?? fail("UTF-8", "other bytes"));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      fail("JSON", error.message);
    }
    const top = new Section(value);
    if (top.any("schema") !== SCHEMA) {
      fail(`schema ${SCHEMA}`, top.any("schema"), "Convert the model again, or update this software");
    }
    const variants = top.section("variants");
    this.variants = new Map(variants.names.map((name) => [name, readVariant(variants.section(name), name)]));
    this.defaultVariant = top.text("default_variant");
    if (!this.variants.has(this.defaultVariant)) {
      fail(`default_variant among ${[...this.variants.keys()].join(", ")}`, this.defaultVariant);
    }
    this.files = readRecords(top.section("files"));
    for (const name of [TOKENIZER, TEMPLATE]) if (!this.files.has(name)) fail(`${name} among files`, "none");
    const model = top.section("model");
    this.model = {
      id: model.text("id"),
      layers: model.whole("num_hidden_layers", 1, 1 << 10),
      kvHeads: model.whole("num_key_value_heads", 1, 1 << 10),
      headDim: model.whole("head_dim", 1, 1 << 13),
      vocabSize: model.whole("vocab_size", 1, 1 << 22),
    };
    this.context = top.whole("context", 1);
    this.notSureFrom = top.share("not_sure_from");
    this.askFrom = top.share("ask_from");
    this.contract = readContract(top.section("contract"));
  }

  /** A variant by its name; throws BundleVariantError for another one. */
  variant(name: string): Variant {
    const found = this.variants.get(name);
    if (found) return found;
    throw new BundleVariantError("variant", `one of ${[...this.variants.keys()].sort().join(", ")}`, name);
  }

  /**
   * SHA-256 of everything that decides a variant's logits: the contract and its files' hashes. Payloads of codec
   * predictive state its first byte.
   */
  fingerprint(variant: string): Bytes {
    const files = [...this.variant(variant).files].sort(([a], [b]) => (a < b ? -1 : 1));
    const hashes = files.map(([name, record]) => `${asciiJson(name)}: ${asciiJson(record.sha256)}`);
    return sha256(utf8(`["${this.contract.identity}", {${hashes.join(", ")}}, "unrounded"]`));
  }
}

function readContract(section: Section): Contract {
  const special = section.section("special");
  const ends = section.any("ends");
  if (ends !== undefined && !(Array.isArray(ends) && ends.every((name) => typeof name === "string"))) {
    fail("texts in contract.ends", ends);
  }
  const contents = section.any("contents");
  if (contents !== CONTENTS) fail(`contract.contents of ${CONTENTS}`, contents);
  for (const name of ends ?? DEFAULT_ENDS) {
    if (!special.names.includes(name)) fail(`contract.special with ${name}`, special.names.join(", "));
  }
  return new Contract({
    vocab_size: section.whole("vocab_size", 1, 1 << 22),
    vocab_hash: section.text("vocab_hash"),
    special: Object.fromEntries(special.names.map((name) => [name, special.whole(name)])),
    template_hash: section.text("template_hash"),
    ...(ends && { ends }),
  });
}

function readVariant(section: Section, name: string): Variant {
  const graph = section.text("graph");
  const files = readRecords(section.section("files"));
  const portable = section.any("portable") === undefined ? null : section.text("portable");
  for (const path of [graph, portable ?? graph]) {
    if (!files.has(path)) fail(`${path} among variants.${name}.files`, [...files.keys()].join(", "));
  }
  return { graph, portable, files };
}

function readRecords(section: Section): Map<string, FileRecord> {
  return new Map(
    section.names.map((path) => {
      if (!isInside(path)) fail("a path inside the bundle", path);
      const record = section.section(path);
      return [path, { size: record.whole("size"), sha256: record.text("sha256") }];
    }),
  );
}

/** True for a relative path that stays inside its folder. */
function isInside(path: string): boolean {
  return path.split("/").every((part) => !["", ".", ".."].includes(part)) && !/[\\:\0?#%]/.test(path);
}
