/**
 * An answer with an anchor service: written around one payload, or written at once, and where the device doubts what it
 * writes refined as payloads arrive.
 *
 * Responsible for both fallbacks: where the service cannot be reached the device answers alone; where its predictions are
 * not those of a predictive payload it asks for a compact one. Not responsible for HTTP (`ServiceClient`).
 */
import type { AnchorSet } from "../anchor-set.js";
import { PayloadFeed } from "../client/payload-feed.js";
import type { Fields, ReceivedPayload, ServiceClient } from "../client/service-client.js";
import type { SharedModel } from "../engine/shared-model.js";
import { CloudUnavailableError, FingerprintError, UsageError } from "../errors.js";
import { doubt } from "../payload/header.js";
import { peek } from "../payload/opened-payload.js";
import type { Base } from "../payload/shared.js";
import type { Prompt } from "../text/chat-template.js";
import type { AnswerEvent, ServiceReport, Stop, Token } from "../token.js";
import { endingOf } from "./ending.js";
import type { Costs, FillOptions } from "./forced-decoder.js";
import type { Model, Outcome } from "./model.js";
import { kept } from "./refinement.js";
import type { Transcript } from "./transcript.js";

/** Where an answer is written. */
export type Mode =
  /** The device alone; nothing leaves it. */
  | "only_on_device"
  /** The device writes at once; where it doubts what it writes the cloud is asked, and the text refined in place. */
  | "prefer_on_device"
  /** The cloud is asked first; where it cannot be reached the device answers alone. */
  | "prefer_in_cloud"
  /** The cloud's anchors, or an error. */
  | "only_in_cloud";

export interface AskOptions extends FillOptions {
  /** "prefer_on_device" by default. */
  readonly mode?: Mode | undefined;
  /** The device's doubt, 0 to 1, above which "prefer_on_device" asks; the bundle's by default, else 0.5. */
  readonly threshold?: number | undefined;
}

const THRESHOLD = 0.5;
/** Tokens of the device before its doubt counts; at the end of a shorter answer it counts too. */
const WATCHED = 6;

const event = (token: Token): AnswerEvent => ({ type: "token", ...token });
const isPredictive = async ({ data }: ReceivedPayload) => (await peek(data)).codec === "predictive";

export class OnlineAnswer {
  readonly promptIds: readonly number[];
  report: ServiceReport = { payloadBytes: [], fellBack: null, failure: null, doubtBefore: null };
  private _feed: PayloadFeed | undefined;
  private readonly _mode: Mode;
  private readonly _threshold: number;
  private _base: Base | undefined;
  private _anchors: AnchorSet;
  private _doubt: number | null = null;
  /** The model that the latest payload is for; the device's own before it. */
  private _on: SharedModel | undefined;

  constructor(
    private readonly _model: Model,
    private readonly _client: ServiceClient,
    private readonly _prompt: Prompt,
    private readonly _options: AskOptions,
    private readonly _transcript: Transcript,
    private readonly _costs: Costs,
  ) {
    this.promptIds = _model.promptIds(_prompt);
    this._anchors = _model.noAnchors();
    const { mode = "prefer_on_device", threshold = _model.bundle.manifest.askFrom ?? THRESHOLD } = _options;
    if (!["prefer_on_device", "prefer_in_cloud", "only_in_cloud"].includes(mode)) {
      throw new UsageError("mode", "one that asks the cloud", mode);
    }
    if (!(threshold >= 0 && threshold <= 1)) throw new UsageError("threshold", "0 to 1", threshold);
    this._mode = mode;
    this._threshold = threshold;
  }

  /** Runs the answer to its end. */
  async *run(): AsyncGenerator<AnswerEvent, Outcome> {
    try {
      const stop = this._mode === "prefer_on_device" ? yield* this._alone() : yield* this._fill();
      return { anchors: this._anchors, stop: stop ?? "limit", doubt: this._doubt };
    } finally {
      this._feed?.close();
    }
  }

  private _open(fields: Fields = {}): PayloadFeed {
    const asked = { contract: this._model.contract.identity, ...fields };
    const stream = this._mode === "prefer_on_device";
    return new PayloadFeed(this._options.signal, (signal) =>
      this._client.payloads(this._prompt, stream, asked, signal),
    );
  }

  /** Waits for the payload, then fills it. */
  private async *_fill(): AsyncGenerator<AnswerEvent, Stop | null> {
    const { _model: model, promptIds, _options: options, _transcript: transcript, _costs: costs } = this;
    const received = yield* this._next();
    if (!received || !(await isPredictive(received))) {
      if (received && !(yield* this._take(received))) return yield* this._fill(); // a compact one is coming
      return yield* events(model.fill(promptIds, this._anchors, options, transcript, costs, undefined, this._on));
    }
    try {
      // Emits the tokens of a predictive payload while it is decoded, and those that follow.
      const outcome = yield* events(model.answer(received.data, promptIds, options, transcript, costs));
      this._anchors = outcome.anchors;
      yield await this._arrived(received);
      return outcome.stop;
    } catch (error) {
      if (!(error instanceof FingerprintError)) throw error;
      if (transcript.retract(0)) yield { type: "retract", position: 0 };
      yield this._askForCompact(error);
      return yield* this._fill();
    }
  }

  /** Writes at once, and asks where the device doubts its tokens. */
  private async *_alone(): AsyncGenerator<AnswerEvent, Stop | null> {
    const { _model: model, promptIds, _transcript: transcript } = this;
    const doubts = () => (transcript.deviceDoubt ?? 0) > this._threshold;
    const asks = () => transcript.tokens.length >= WATCHED && doubts();
    const stop = yield* events(model.fill(promptIds, this._anchors, this._options, transcript, this._costs, asks));
    if (stop !== null && !doubts()) return stop;
    this.report = { ...this.report, doubtBefore: transcript.deviceDoubt };
    this._feed = this._open();
    return yield* this._refine();
  }

  /** Goes on writing; with every payload takes back what it contradicts. */
  private async *_refine(): AsyncGenerator<AnswerEvent, Stop | null> {
    const { _model: model, promptIds, _transcript: transcript, _costs: costs } = this;
    const rest: FillOptions = { ...this._options, echoPrompt: false };
    let eosFrom = 0;
    for (;;) {
      const interrupted = () => this._feed?.isReady ?? false;
      const before = this._on;
      const filling = model.fill(promptIds, this._anchors, rest, transcript, costs, interrupted, before);
      const stop = yield* events(filling);
      const received = yield* this._next();
      if (!received) {
        // A failure of the service may have ended the run before its end.
        return (
          stop ?? (yield* events(model.fill(promptIds, this._anchors, rest, transcript, costs, undefined, before)))
        );
      }
      if (!(yield* this._take(received))) continue;
      const ending = endingOf(this._anchors, model.bundle.manifest.context - promptIds.length, rest.maxTokens);
      const same = this._on === (before ?? (await model.modelOf(null)));
      const position = kept(transcript.tokens, this._anchors, ending, eosFrom, same);
      if (transcript.retract(position)) yield { type: "retract", position };
      eosFrom = ending.eosFrom;
    }
  }

  /** The next payload; null after the last one, and where the service failed, which is reported. */
  private async *_next(): AsyncGenerator<AnswerEvent, ReceivedPayload | null> {
    try {
      this._feed ??= this._open();
      return await this._feed.next();
    } catch (error) {
      if (!(error instanceof CloudUnavailableError)) throw error;
      const alone = this.report.payloadBytes.length === 0;
      if (alone && this._mode === "only_in_cloud") throw error;
      this.report = { ...this.report, failure: error.message };
      yield { type: "failure", reason: error.message, alone };
      return null;
    }
  }

  /** Decodes a payload and makes its anchors the latest; false where it is asked for again. */
  private async *_take(received: ReceivedPayload): AsyncGenerator<AnswerEvent, boolean> {
    const { _model: model, promptIds, _costs: costs, _options: options } = this;
    const base = received.delta ? this._base : undefined;
    try {
      if (await isPredictive(received)) {
        const decoding = model.decodePredictive(received.data, promptIds, base, costs, options.signal);
        let next = await decoding.next();
        while (!next.done) next = await decoding.next();
        this._anchors = next.value;
      } else {
        this._anchors = await model.decode(received.data, promptIds, base);
      }
    } catch (error) {
      if (!(error instanceof FingerprintError)) throw error;
      yield this._askForCompact(error);
      return false;
    }
    this._on = await model.modelOf(received.data);
    yield await this._arrived(received);
    return true;
  }

  private async _arrived({ data }: ReceivedPayload): Promise<AnswerEvent> {
    this._base = { data, anchors: this._anchors };
    this._doubt = doubt((await peek(data)).extras.confidence);
    this.report = { ...this.report, payloadBytes: [...this.report.payloadBytes, data.length] };
    return { type: "payload", data, anchors: this._anchors.size, doubt: this._doubt };
  }

  private _askForCompact(error: FingerprintError): AnswerEvent {
    if (this.report.fellBack !== null) throw error;
    this.report = { ...this.report, fellBack: error.message };
    this._feed?.close();
    this._base = undefined;
    this._feed = this._open({ codec: "compact" });
    return { type: "compact", reason: error.message };
  }
}

/** The tokens of a decoding as events. */
async function* events<R>(tokens: AsyncGenerator<Token, R>): AsyncGenerator<AnswerEvent, R> {
  for (;;) {
    const next = await tokens.next();
    if (next.done) return next.value;
    yield event(next.value);
  }
}
