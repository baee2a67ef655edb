/**
 * Forms and decisions: questions with listed options, and the probabilities of their options that a cloud has read
 * (SPEC.md, "Decisions"). Not responsible for reading them with a model on this device.
 */
import { type Bytes, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { ChecksumError, MalformedPayloadError, UsageError, VersionError } from "./errors.js";
import { crc, uint16 } from "./payload/checksum.js";
import { RangeDecoder } from "./payload/codecs/range-decoder.js";
import { HEADER_BYTES } from "./payload/opened-payload.js";

export type Scalar = string | number | boolean | null;
type Schema = Record<string, unknown>;

/** One question. `member`: it asks whether this is one of a set; undefined for other questions. */
export interface Slot {
  readonly name: string;
  readonly options: readonly string[];
  readonly values: readonly Scalar[];
  readonly says: string;
  readonly member?: Scalar;
}

const MARK = 0xd0;
const [MAX_SLOTS, MAX_OPTIONS, MAX_TEXT] = [64, 64, 4096];
const STEPS = [14, 8, 4];

/** Questions with listed options. Throws UsageError for a schema without; its keywords are the service's to check. */
export class Form {
  readonly slots: readonly Slot[];
  /** 64 hex digits, the same on every side that has the schema. */
  readonly identity: string;

  private constructor(parts: readonly (string | Slot)[], says: string) {
    this.slots = parts.filter((part) => typeof part !== "string");
    require(this.slots.length > 0 && this.slots.length <= MAX_SLOTS, "form", "1 to 64 questions", this.slots.length);
    for (const { name, options } of this.slots) {
      const several = options.length > 1 && options.length <= MAX_OPTIONS && !options.includes("");
      require(several && new Set(options).size === options.length, name, "2 to 64 different options", options);
    }
    const said = parts.map((part) => (typeof part === "string" ? part : [part.name, part.options, part.says]));
    const text = utf8(JSON.stringify([says, said]));
    require(text.length <= MAX_TEXT, "form", `at most ${MAX_TEXT} bytes in all`, text.length);
    this.identity = toHex(sha256(text));
  }

  /** The form of a JSON Schema's text; throws SyntaxError for what is no JSON. */
  static of(schema: string): Form {
    const root = JSON.parse(schema) as Schema;
    const [, { properties, description }] = checked(root, "schema", root, "object");
    const parts: (string | Slot)[] = [];
    let before = "{";
    for (const [name, stated] of Object.entries((properties ?? {}) as Schema)) {
      require(!/^\d+$/.test(
        name,
      ), "schema", "names of properties that are no numbers, which JavaScript reorders", name);
      const [kind, asked] = checked(stated, name, root, "boolean", "integer", "enum", "array");
      const says = asked.description as string;
      before += `${JSON.stringify(name)}: `;
      if (kind === "array") {
        before += "{";
        for (const member of values(name, ...checked(asked.items, name, root, "enum"))) {
          const key = JSON.stringify(typeof member === "string" ? member : JSON.stringify(member));
          parts.push(`${before}${key}:`, { name, options: [" true", " false"], values: [true, false], says, member });
          before = ", ";
        }
        before = "}, ";
      } else {
        const listed = values(name, kind, asked);
        const quoted = listed.every((value) => typeof value === "string");
        const options = listed.map((value) =>
          quoted ? JSON.stringify(value).slice(1, -1) : ` ${JSON.stringify(value)}`,
        );
        parts.push(quoted ? `${before}"` : before.slice(0, -1), { name, options, values: listed, says });
        before = quoted ? '", ' : ", ";
      }
    }
    return new Form([...parts, `${before.slice(0, -2)}}`], description as string);
  }

  /** The object that the chosen options make, one per slot. */
  value(chosen: readonly number[]): Record<string, Scalar | Scalar[]> {
    const found: Record<string, Scalar | Scalar[]> = {};
    this.slots.forEach(({ name, values, member }, at) => {
      const value = values[chosen[at] ?? 0] ?? null;
      if (member === undefined) found[name] = value;
      else found[name] = [...((found[name] ?? []) as Scalar[]), ...(value ? [member] : [])];
    });
    return found;
  }

  /** The probabilities of the options of the questions that are answered, by index. Throws PayloadError classes. */
  read(data: Bytes, text: string): Map<number, number[]> {
    const most = HEADER_BYTES + 4 * this.slots.length + 8;
    if (data.length < HEADER_BYTES || data.length > most) {
      throw new MalformedPayloadError("decisions", `${HEADER_BYTES} to ${most} bytes`, data.length);
    }
    const mark = data[0] ?? 0;
    if ((mark & 0xfe) !== MARK) throw new VersionError("decisions", "byte 0 of 0xd0", mark);
    const form = fromHex(this.identity);
    if (data[1] !== form[0] || uint16(data, 2) !== (crc(data) ^ uint16(sha256(form, utf8(text)), 0))) {
      throw new ChecksumError("decisions", "those of this form about this text", "others");
    }
    const coder = new RangeDecoder(data.subarray(HEADER_BYTES));
    const found = new Map<number, number[]>();
    this.slots.forEach((slot, at) => {
      if (!(mark & 1) || coder.uniform(2)) found.set(at, distribution(coder, slot.options.length));
    });
    if (coder.unread || (coder.size && !data.at(-1))) throw new MalformedPayloadError("decisions", "the end", "more");
    return found;
  }
}

function distribution(coder: RangeDecoder, size: number): number[] {
  const left = Array.from({ length: size }, (_, at) => at);
  const found = new Array<number>(size).fill(0);
  let mass = 1;
  for (const steps of size <= 4 ? STEPS : STEPS.slice(0, 2)) {
    if (left.length === 1 || mass < 0.01) break;
    const [option = 0] = left.splice(coder.uniform(left.length), 1);
    const least = Math.asin(Math.sqrt(1 / (left.length + 1)));
    const share = Math.sin(least + ((coder.uniform(steps) + 0.5) * (Math.PI / 2 - least)) / steps) ** 2;
    found[option] = mass * share;
    mass *= 1 - share;
  }
  for (const option of left) found[option] = mass / left.length;
  return found;
}

/** The kind of a schema, and the schema with what it refers to in its place. */
function checked(stated: unknown, where: string, root: Schema, ...kinds: string[]): [string, Schema] {
  require(typeof stated === "object" && stated !== null && !Array.isArray(stated), where, "a JSON Schema", stated);
  const named = root.$defs as Record<string, Schema> | undefined;
  const found: Schema = {
    description: "",
    ...named?.[String((stated as Schema).$ref).slice(8)],
    ...(stated as Schema),
  };
  const kind = "enum" in found ? "enum" : String(found.type ?? "object");
  require(kinds.includes(kind), where, kinds.join(" or "), kind);
  return [kind, found];
}

function values(name: string, kind: string, asked: Schema): Scalar[] {
  if (kind === "boolean") return [true, false];
  if (kind === "integer") {
    const [low, high] = [Number(asked.minimum), Number(asked.maximum)];
    require(high - low < MAX_OPTIONS && Number.isInteger(low), name, "2 to 64 whole numbers", [low, high]);
    return Array.from({ length: high - low + 1 }, (_, at) => low + at);
  }
  const scalar = (value: unknown) =>
    ["string", "boolean"].includes(typeof value) || value === null || Number.isSafeInteger(value);
  const fine = Array.isArray(asked.enum) && asked.enum.every(scalar);
  require(fine, name, "strings, whole numbers, booleans or null", asked.enum);
  return asked.enum as Scalar[];
}

function require(fine: boolean, where: string, expected: string, found: unknown): void {
  if (!fine) throw new UsageError(where, expected, found);
}
