/** A compiled chat template, `chat_template.json`: a prefix and a suffix per role. */
import { BundleSchemaError, UsageError } from "../errors.js";

export const ROLES = ["system", "user", "assistant"] as const;
type Role = (typeof ROLES)[number];

/** A message of a conversation. */
export interface ChatMessage {
  readonly role: Role;
  readonly content: string;
}

/** A question, or a conversation that ends with one. */
export type Prompt = string | readonly ChatMessage[];

/** The messages of a prompt. */
export function asMessages(prompt: Prompt): readonly ChatMessage[] {
  return typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt;
}

/** A part of a rendered conversation: a message's content, or text of the template. */
export interface Piece {
  readonly text: string;
  readonly isContent: boolean;
}

function refuse(expected: string, found: unknown): never {
  throw new BundleSchemaError("chat template", expected, found ?? "none", "Convert the model again");
}

export class ChatTemplate {
  private readonly _defaultSystem: string | null;
  private readonly _affixes: ReadonlyMap<string, readonly [string, string]>;
  private readonly _generation: string;
  private readonly _start: string;

  /** Takes the parsed file; throws BundleSchemaError where a field is missing or of another type. */
  constructor(value: unknown) {
    if (typeof value !== "object" || value === null) refuse("an object", value);
    const map = value as Readonly<Record<string, unknown>>;
    const text = (name: string) => {
      const found = map[name];
      return typeof found === "string" ? found : refuse(`text in '${name}'`, found);
    };
    if (!("default_system" in map)) refuse("a field 'default_system'", Object.keys(map).join(", "));
    this._defaultSystem = map.default_system === null ? null : text("default_system");
    this._affixes = new Map(
      ROLES.map((role) => {
        const pair = map[role];
        const isPair = Array.isArray(pair) && pair.length === 2 && pair.every((affix) => typeof affix === "string");
        return [role, isPair ? (pair as [string, string]) : refuse(`[prefix, suffix] in '${role}'`, pair)];
      }),
    );
    this._generation = text("generation");
    this._start = "start" in map ? text("start") : "";
  }

  /** The parts of a conversation in order, up to the start of the answer. */
  pieces(messages: readonly ChatMessage[]): Piece[] {
    const all = [...messages];
    if (this._defaultSystem !== null && all[0]?.role !== "system") {
      all.unshift({ role: "system", content: this._defaultSystem });
    }
    if (!messages.length) throw new UsageError("messages", "at least one message", "none");
    const parts = all.flatMap(({ role, content }) => {
      const affixes = this._affixes.get(role);
      if (!affixes || typeof content !== "string") {
        throw new UsageError("chat message", `a role of ${ROLES.join(", ")} and a text`, { role, content });
      }
      const [prefix, suffix] = affixes.map((text) => ({ text, isContent: false }));
      return [prefix, { text: content, isContent: true }, suffix] as Piece[];
    });
    return [{ text: this._start, isContent: false }, ...parts, { text: this._generation, isContent: false }];
  }
}
