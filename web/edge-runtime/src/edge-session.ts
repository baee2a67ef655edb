/**
 * EdgeSession: a conversation on the device, whose turns share one KV cache.
 *
 *     const session = new EdgeSession(edge, { system: "Answer in one sentence." });
 *     for await (const token of session.ask("Which river runs through Vienna?")) show(token.text);
 *     const data = await session.save();
 *
 * A session keeps messages as text, and an answer is the one that a fresh session gives which is handed the whole text:
 * the engine runs only the tokens that its cache lacks. Responsible for turns, for what is dropped where a conversation
 * outgrows the context, and for sessions as bytes.
 */
import { concat, sha256, strictUtf8, toHex, utf8 } from "./bytes.js";
import type { FillOptions } from "./decode/forced-decoder.js";
import type { AskOptions } from "./decode/online-answer.js";
import { Answer, type Cloud, type Edge } from "./edge-model.js";
import { SessionFileError, UsageError } from "./errors.js";
import { type ChatMessage, ROLES } from "./text/chat-template.js";
import type { AnswerEvent, FillStats, Token } from "./token.js";

/** Tokens kept free for an answer whose options do not limit it. */
const RESERVE = 128;

const MAGIC = "IVSESS01";
const START = MAGIC.length + 4;
const DIGEST_BYTES = 32;

export interface SessionOptions {
  /** Content of a system message to put first. */
  readonly system?: string | undefined;
  /** The conversation so far. */
  readonly messages?: readonly ChatMessage[] | undefined;
  /** Tokens kept free for an answer whose options do not limit it; 128 by default. */
  readonly reserve?: number | undefined;
}

/** Options of one turn. */
export interface TurnOptions extends AskOptions {
  /** Anchors at hand, made for the messages of `prompt`; then no cloud is asked. */
  readonly payload?: Uint8Array | null | undefined;
  /** Whom the modes that ask may ask. Without one the mode is "only_on_device". */
  readonly cloud?: Cloud | undefined;
  /** The device answers alone, whatever the mode, now and for the rest of the conversation. */
  readonly private?: boolean | undefined;
}

/** The answer of one turn. */
export class TurnAnswer<T extends Token | AnswerEvent> extends Answer<T> {
  /** Those so far, without any that were taken back. */
  tokens: readonly Token[] = [];
  /** Turns that no longer fitted the context. */
  dropped = 0;

  /** Whose tokens the answer has. */
  get source(): "on_device" | "in_cloud" | "mixed" {
    const anchors = this.tokens.filter(({ source }) => source === "anchor").length;
    return !anchors ? "on_device" : anchors === this.tokens.length ? "in_cloud" : "mixed";
  }
}

/** Messages, and the model that answers them; clones and further sessions may share the model. */
export class EdgeSession {
  readonly reserve: number;
  /** Whether anything was said that must not leave the device; clones and saved sessions keep it. */
  private = false;
  private _messages: readonly ChatMessage[];
  private _open = false;

  constructor(
    readonly edge: Edge,
    options: SessionOptions = {},
  ) {
    const { system, messages = [], reserve = RESERVE } = options;
    if (system !== undefined && messages[0]?.role === "system") {
      throw new UsageError("messages", "none of role system beside the system text given", "one");
    }
    this._messages = system === undefined ? messages : [{ role: "system", content: system }, ...messages];
    this.reserve = reserve;
  }

  /** The conversation so far: system prompt, questions and answers. */
  get messages(): readonly ChatMessage[] {
    return this._messages;
  }

  /** A session with the same conversation, which goes its own way from here. */
  clone(): EdgeSession {
    const other = new EdgeSession(this.edge, { messages: this._messages, reserve: this.reserve });
    other.private = this.private;
    return other;
  }

  /**
   * The messages that a question is answered with, and the number of turns dropped from them.
   *
   * Where they and the answer do not fit the context, whole turns are dropped, the oldest first; the system prompt and the
   * question stay. A payload for the question has to be made for these messages.
   */
  async prompt(question: string, options: FillOptions = {}): Promise<{ messages: ChatMessage[]; dropped: number }> {
    const room = this.edge.info.context - (options.maxTokens ?? this.reserve);
    let messages: ChatMessage[] = [...this._messages, { role: "user", content: question }];
    let dropped = 0;
    while ((await this.edge.countTokens(messages)) > room) {
      const head = messages[0]?.role === "system" ? 1 : 0;
      const rest = messages.findIndex(({ role }, at) => at > head && role === "user");
      if (rest < 0) break; // the question alone: decoding says where it does not fit
      messages = [...messages.slice(0, head), ...messages.slice(rest)];
      dropped++;
    }
    return { messages, dropped };
  }

  /**
   * The answer to the next question. Without a cloud its items are tokens, with one they are events.
   *
   * Question and answer join the conversation when the answer ends or is left; one that is left as far as it was written,
   * and neither where nothing was. Throws UsageError while the answer before is still open.
   */
  ask(question: string, options: TurnOptions & { readonly cloud: Cloud }): TurnAnswer<AnswerEvent>;
  ask(question: string, options?: TurnOptions & { readonly cloud?: undefined }): TurnAnswer<Token>;
  ask(question: string, options: TurnOptions = {}): TurnAnswer<Token> | TurnAnswer<AnswerEvent> {
    const { payload = null, cloud, private: isPrivate = false, ...rest } = options;
    const { mode = cloud ? "prefer_on_device" : "only_on_device" } = rest;
    if (!cloud && mode !== "only_on_device") throw new UsageError("mode", `a cloud beside ${mode}`, "none");
    if (cloud && payload) throw new UsageError("payload", "no cloud beside a payload at hand", "both");
    this.private ||= isPrivate;
    if (!cloud) return this._turn((prompt) => this.edge.fill(payload, { ...rest, prompt }), rest, question);
    const alone = this.private || mode === "only_on_device";
    return this._turn<AnswerEvent>(
      (prompt) => (alone ? asEvents(this.edge.fill(null, { ...rest, prompt })) : this.edge.ask(cloud, prompt, rest)),
      rest,
      question,
    );
  }

  private _turn<T extends Token | AnswerEvent>(
    answerTo: (prompt: ChatMessage[]) => Answer<T>,
    options: FillOptions,
    question: string,
  ): TurnAnswer<T> {
    const turn: TurnAnswer<T> = new TurnAnswer<T>(() => this._kept(turn, answerTo, options, question));
    return turn;
  }

  private async *_kept<T extends Token | AnswerEvent>(
    turn: TurnAnswer<T>,
    answerTo: (prompt: ChatMessage[]) => Answer<T>,
    options: FillOptions,
    question: string,
  ): AsyncGenerator<T, FillStats> {
    if (this._open) throw new UsageError("session", "the last answer to be read or left", "it still open");
    this._open = true;
    let messages: readonly ChatMessage[] = [];
    let tail = "";
    try {
      const prompt = await this.prompt(question, options);
      messages = prompt.messages;
      turn.dropped = prompt.dropped;
      const answer = answerTo(prompt.messages);
      for await (const item of answer) {
        if (!("type" in item) || item.type === "token") {
          if (item.position >= 0) turn.tokens = [...turn.tokens, item];
        } else if (item.type === "retract") {
          turn.tokens = turn.tokens.slice(0, item.position);
        }
        yield item;
      }
      const stats = await answer.stats;
      tail = stats.tail;
      return stats;
    } finally {
      this._open = false;
      if (turn.tokens.length) {
        const content = turn.tokens.map(({ text }) => text).join("") + tail;
        this._messages = [...messages, { role: "assistant", content }];
      }
    }
  }

  /** Messages and what the cache holds of them, tied to the bundle's variant by hash. */
  async save(): Promise<Uint8Array> {
    const kept = this._messages.length ? await this.edge.cached(this._messages) : null;
    const messages = this._messages.map(({ role, content }) => [role, content]);
    const said = { messages, tokens: kept?.ids ?? [], private: this.private };
    const header = utf8(JSON.stringify({ ...this._identity(), ...said }));
    const size = new DataView(new ArrayBuffer(4));
    size.setUint32(0, header.length, true);
    const values = kept ? new Uint8Array(kept.values.buffer) : new Uint8Array(0);
    const body = concat(utf8(MAGIC), new Uint8Array(size.buffer), header, values);
    return concat(body, sha256(body));
  }

  /** The session of such bytes, its cache restored. Throws SessionFileError where they do not fit the model. */
  static async load(data: Uint8Array, edge: Edge, options: Pick<SessionOptions, "reserve"> = {}): Promise<EdgeSession> {
    const bytes = Uint8Array.from(data);
    const body = bytes.subarray(0, -DIGEST_BYTES);
    const isOne = strictUtf8(body.subarray(0, MAGIC.length)) === MAGIC;
    if (!isOne || body.length < START || toHex(sha256(body)) !== toHex(bytes.subarray(-DIGEST_BYTES))) {
      const found = isOne ? "one that is damaged" : "other bytes";
      throw new SessionFileError("session", "a whole session of this software", found);
    }
    const end = START + new DataView(bytes.buffer).getUint32(MAGIC.length, true);
    let head: SessionHead;
    try {
      head = parseHead(strictUtf8(body.subarray(START, end)) ?? "");
    } catch (error) {
      throw new SessionFileError("session", "messages and tokens", error);
    }
    const session = new EdgeSession(edge, { ...options, messages: head.messages });
    session.private = head.private;
    for (const [name, wanted] of Object.entries(session._identity())) {
      const found = head.identity.get(name);
      if (found !== wanted) {
        const { id, variant } = edge.info;
        throw new SessionFileError("session", `one of ${id}, variant ${variant} (${name} ${wanted})`, found);
      }
    }
    if (head.ids.length) {
      try {
        await edge.restore({ ids: head.ids, values: new Float32Array(body.slice(end).buffer) });
      } catch (error) {
        throw new SessionFileError("session", `the cache of ${head.ids.length} tokens`, error);
      }
    }
    return session;
  }

  private _identity(): Record<string, string> {
    const { contract, weights } = this.edge.info;
    return { contract, weights };
  }
}

/** An answer of the device alone as events. */
function asEvents(answer: Answer<Token>): Answer<AnswerEvent> {
  return new Answer(async function* () {
    for await (const token of answer) yield { type: "token", ...token } as const;
    const stats = await answer.stats;
    yield { type: "done", stats } as const;
    return stats;
  });
}

interface SessionHead {
  readonly messages: ChatMessage[];
  readonly ids: number[];
  readonly private: boolean;
  readonly identity: ReadonlyMap<string, unknown>;
}

/** Throws TypeError or SyntaxError for another form. */
function parseHead(text: string): SessionHead {
  const identity = new Map(Object.entries(JSON.parse(text) as object));
  const [messages, ids, isPrivate] = ["messages", "tokens", "private"].map((name) => identity.get(name));
  const isMessage = (each: unknown) =>
    Array.isArray(each) && each.length === 2 && ROLES.includes(each[0]) && typeof each[1] === "string";
  if (!Array.isArray(messages) || !messages.every(isMessage)) throw new TypeError("other messages");
  if (!Array.isArray(ids) || !ids.every(Number.isInteger)) throw new TypeError("other tokens");
  if (typeof isPrivate !== "boolean") throw new TypeError("not whether it is private");
  return { messages: messages.map(([role, content]) => ({ role, content })), ids, private: isPrivate, identity };
}
