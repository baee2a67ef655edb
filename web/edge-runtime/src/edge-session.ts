/**
 * EdgeSession: a conversation on the device.
 *
 *     const session = new EdgeSession(edge, { system: "Answer in one sentence." });
 *     for await (const token of session.ask("Which river runs through Vienna?")) show(token.text);
 *     const data = await session.save();
 *
 * A session keeps messages as text, and an answer is the one that a fresh session gives which is handed the whole text:
 * the model runs only the tokens that no cache has. Responsible for turns, for what is dropped where a conversation
 * outgrows the context, and for sessions as bytes.
 */
import { strictUtf8, utf8 } from "./bytes.js";
import type { FillOptions } from "./decode/forced-decoder.js";
import type { AskOptions } from "./decode/online-answer.js";
import { Answer, type Cloud, type Edge } from "./edge-model.js";
import { SessionFileError, UsageError } from "./errors.js";
import { type ChatMessage, ROLES } from "./text/chat-template.js";
import type { AnswerEvent, FillStats, Token } from "./token.js";

/** Tokens kept free for an answer whose options do not limit it. */
const RESERVE = 128;

const FORMAT = "inverse speculation session 2";
const MAX_FILE_BYTES = 16 << 20;

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
    const turns: ChatMessage[] = [...this._messages, { role: "user", content: question }];
    const head = turns[0]?.role === "system" ? 1 : 0;
    const starts = [head, ...turns.keys()].filter((at, index) => !index || (at > head && turns[at]?.role === "user"));
    const without = (many: number) => [...turns.slice(0, head), ...turns.slice(starts[many])];
    const fits = async (many: number) => (await this.edge.countTokens(without(many))) <= room;
    // Backwards from the question, which stays though it may not fit, in doubling steps: a history far beyond the context is
    // not read.
    let dropped = starts.length - 1;
    let step = 1;
    for (; dropped && (await fits(Math.max(0, dropped - step))); step *= 2) dropped = Math.max(0, dropped - step);
    for (let least = Math.max(0, dropped - step); least < dropped; ) {
      const middle = (least + dropped) >> 1;
      if (await fits(middle)) dropped = middle;
      else least = middle + 1;
    }
    return { messages: without(dropped), dropped };
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

  /** The conversation as JSON in UTF-8, which Python reads as well; a session that is loaded reads its text anew. */
  async save(): Promise<Uint8Array> {
    const messages = this._messages.map(({ role, content }) => [role, content]);
    return utf8(JSON.stringify({ format: FORMAT, private: this.private, messages }));
  }

  /** The session of such bytes, for any model. Throws SessionFileError for others. */
  static async load(data: Uint8Array, edge: Edge, options: Pick<SessionOptions, "reserve"> = {}): Promise<EdgeSession> {
    if (data.length > MAX_FILE_BYTES)
      throw new SessionFileError("session", `at most ${MAX_FILE_BYTES} bytes`, data.length);
    let fields: Record<string, unknown> = {};
    try {
      fields = Object(JSON.parse(strictUtf8(data) ?? ""));
    } catch {} // without fields it is none
    const { format, private: isPrivate, messages } = fields;
    const isOne = format === FORMAT && typeof isPrivate === "boolean";
    if (!isOne || !Array.isArray(messages) || !messages.every(isMessage)) {
      throw new SessionFileError("session", `${FORMAT} as JSON`, format ?? "other bytes");
    }
    const said: ChatMessage[] = messages.map(([role, content]) => ({ role, content }));
    const session = new EdgeSession(edge, { ...options, messages: said });
    session.private = isPrivate;
    return session;
  }
}

function isMessage(value: unknown): boolean {
  return Array.isArray(value) && value.length === 2 && ROLES.includes(value[0]) && typeof value[1] === "string";
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
