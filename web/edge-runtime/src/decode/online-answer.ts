/**
 * An answer with an anchor service: written at once and refined as payloads arrive, or written around one payload.
 *
 * Responsible for both fallbacks: where the service cannot be reached the device answers alone; where its predictions are
 * not those of a predictive payload it asks for a compact one. Not responsible for HTTP (`ServiceClient`).
 */
import type { AnchorSet } from "../anchor-set.js";
import { PayloadFeed } from "../client/payload-feed.js";
import type { ReceivedPayload, ServiceClient, ServiceOptions } from "../client/service-client.js";
import { CloudUnavailableError, FingerprintError } from "../errors.js";
import { type Codec, doubt } from "../payload/header.js";
import { peek } from "../payload/opened-payload.js";
import type { Base } from "../payload/shared.js";
import type { AnswerEvent, ServiceReport, Stop, Token } from "../token.js";
import { endingOf } from "./ending.js";
import type { Costs, FillOptions } from "./forced-decoder.js";
import type { Model, Outcome } from "./model.js";
import { kept } from "./refinement.js";
import type { Transcript } from "./transcript.js";

const event = (token: Token): AnswerEvent => ({ type: "token", ...token });
const isPredictive = (received: ReceivedPayload) => peek(received.data).codec === "predictive";

export class OnlineAnswer {
  readonly promptIds: readonly number[];
  report: ServiceReport = { payloadBytes: [], fellBack: null, failure: null };
  private feed: PayloadFeed;
  private base: Base | undefined;
  private anchors: AnchorSet;
  private doubt: number | null = null;

  constructor(
    private readonly model: Model,
    private readonly client: ServiceClient,
    private readonly prompt: string,
    private readonly options: FillOptions & ServiceOptions,
    private readonly transcript: Transcript,
    private readonly costs: Costs,
  ) {
    this.promptIds = model.promptIds(prompt);
    this.anchors = model.noAnchors();
    this.feed = this.open(options.codec);
  }

  /** Runs the answer to its end. */
  async *run(): AsyncGenerator<AnswerEvent, Outcome> {
    try {
      const stop = this.options.stream ? yield* this.refine() : yield* this.fill();
      return { anchors: this.anchors, stop: stop ?? "limit", doubt: this.doubt };
    } finally {
      this.feed.close();
    }
  }

  private open(codec: Codec | undefined): PayloadFeed {
    const contract = this.model.contract.identity;
    const { stream, fractions = [], confidence, signal } = this.options;
    const request = { contract, codec, signal, ...(confidence && { confidence }) };
    return new PayloadFeed(signal, async (put, leaving) => {
      const own = { ...request, signal: leaving };
      if (stream) {
        for await (const each of this.client.stream(this.prompt, { ...own, fractions })) put(each);
      } else {
        put({ data: await this.client.fetch(this.prompt, { ...own, fraction: fractions[0] }), delta: false });
      }
    });
  }

  /** Waits for the payload, then fills it. */
  private async *fill(): AsyncGenerator<AnswerEvent, Stop | null> {
    const { model, promptIds, options, transcript, costs } = this;
    const received = yield* this.next();
    if (!received || !isPredictive(received)) {
      if (received) yield* this.take(received);
      return yield* events(model.fill(promptIds, this.anchors, options, transcript, costs));
    }
    try {
      // Emits the tokens of a predictive payload while it is decoded, and those that follow.
      const outcome = yield* events(model.answer(received.data, promptIds, options, transcript, costs));
      this.anchors = outcome.anchors;
      yield this.arrived(received);
      return outcome.stop;
    } catch (error) {
      if (!(error instanceof FingerprintError)) throw error;
      if (transcript.retract(0)) yield { type: "retract", position: 0 };
      yield this.askForCompact(error);
      return yield* this.fill();
    }
  }

  /** Writes at once; with every payload takes back what it contradicts, and goes on. */
  private async *refine(): AsyncGenerator<AnswerEvent, Stop | null> {
    const { model, promptIds, transcript, costs } = this;
    let rest: FillOptions = this.options;
    let eosFrom = 0;
    for (;;) {
      const interrupted = () => this.feed.isReady;
      const stop = yield* events(model.fill(promptIds, this.anchors, rest, transcript, costs, interrupted));
      rest = { ...rest, echoPrompt: false };
      const received = yield* this.next();
      if (!received) {
        // A failure of the service may have ended the run before its end.
        return stop ?? (yield* events(model.fill(promptIds, this.anchors, rest, transcript, costs)));
      }
      if (!(yield* this.take(received))) continue;
      const ending = endingOf(this.anchors, model.engine.context - promptIds.length, rest.maxTokens);
      const position = kept(transcript.tokens, this.anchors, ending, eosFrom);
      if (transcript.retract(position)) yield { type: "retract", position };
      eosFrom = ending.eosFrom;
    }
  }

  /** The next payload; null after the last one, and where the service failed, which is reported. */
  private async *next(): AsyncGenerator<AnswerEvent, ReceivedPayload | null> {
    try {
      return await this.feed.next();
    } catch (error) {
      if (!(error instanceof CloudUnavailableError)) throw error;
      const alone = this.report.payloadBytes.length === 0;
      if (alone && this.options.fallback === false) throw error;
      this.report = { ...this.report, failure: error.message };
      yield { type: "failure", reason: error.message, alone };
      return null;
    }
  }

  /** Decodes a payload and makes its anchors the latest; false where it is asked for again. */
  private async *take(received: ReceivedPayload): AsyncGenerator<AnswerEvent, boolean> {
    const { model, promptIds, costs, options } = this;
    const base = received.delta ? this.base : undefined;
    try {
      if (isPredictive(received)) {
        const decoding = model.decodePredictive(received.data, promptIds, base, costs, options.signal);
        let next = await decoding.next();
        while (!next.done) next = await decoding.next();
        this.anchors = next.value;
      } else {
        this.anchors = await model.decode(received.data, promptIds, base);
      }
    } catch (error) {
      if (!(error instanceof FingerprintError)) throw error;
      yield this.askForCompact(error);
      return false;
    }
    yield this.arrived(received);
    return true;
  }

  private arrived({ data }: ReceivedPayload): AnswerEvent {
    this.base = { data, anchors: this.anchors };
    this.doubt = doubt(peek(data).extras.confidence);
    this.report = { ...this.report, payloadBytes: [...this.report.payloadBytes, data.length] };
    return { type: "payload", data, anchors: this.anchors.size, doubt: this.doubt };
  }

  private askForCompact(error: FingerprintError): AnswerEvent {
    if (this.report.fellBack !== null) throw error;
    this.report = { ...this.report, fellBack: error.message };
    this.feed.close();
    this.base = undefined;
    this.feed = this.open("compact");
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
