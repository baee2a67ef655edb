/** The parts of an open model, and an answer to a payload: tokenizer, template, and the engine in two forms. */
import { AnchorSet } from "../anchor-set.js";
import type { LoadedBundle } from "../bundle/bundle.js";
import type { Bytes } from "../bytes.js";
import type { Engine } from "../engine/engine.js";
import { EnginePredictor } from "../engine/engine-predictor.js";
import { SharedModel } from "../engine/shared-model.js";
import { Turns } from "../engine/turns.js";
import { UsageError } from "../errors.js";
import { doubt, isBound } from "../payload/header.js";
import { peek } from "../payload/opened-payload.js";
import type { Base } from "../payload/shared.js";
import { decode, decodePredictive } from "../payload/wire.js";
import { asMessages, type ChatMessage, type Prompt } from "../text/chat-template.js";
import type { Stop, Token } from "../token.js";
import { type Costs, type FillOptions, forcedDecode, type RawToken } from "./forced-decoder.js";
import { Transcript } from "./transcript.js";

/** What an answer was made of, for its statistics. */
export interface Outcome {
  readonly anchors: AnchorSet;
  readonly stop: Stop;
  readonly doubt: number | null;
}

export class Model {
  private readonly _fingerprint: Bytes;
  private readonly _turns = new Turns();
  private readonly _shared: SharedModel;
  private _predictive: Promise<SharedModel> | undefined;
  private _closing: Promise<void> | undefined;

  /**
   * @param engine generates and forces tokens.
   * @param openPredictive opens the engine with float32 activations, which payloads bound to a model are for.
   */
  constructor(
    readonly bundle: LoadedBundle,
    engine: Engine,
    private readonly _openPredictive: () => Promise<Engine>,
  ) {
    this._fingerprint = bundle.manifest.fingerprint(bundle.variant);
    this._shared = new SharedModel(engine, this._turns);
  }

  get contract() {
    return this.bundle.manifest.contract;
  }

  /** Throws UsageError where the model was closed, as does everything that runs it. */
  promptIds(prompt: Prompt): number[] {
    this._turns.check();
    const { tokenizer, template } = this.bundle;
    return tokenizer.encodePieces(template.pieces(asMessages(prompt)));
  }

  transcript(): Transcript {
    return new Transcript(this.bundle.tokenizer);
  }

  /** No anchors, on as much room as there is. */
  noAnchors(): AnchorSet {
    return AnchorSet.empty(this.bundle.manifest.context, this.contract);
  }

  /** The anchors of a payload of a codec that runs no model. */
  decode(payload: Uint8Array, promptIds: readonly number[] | undefined, base?: Base): Promise<AnchorSet> {
    const row = () => Promise.reject(new Error("a codec that runs no model"));
    const predictor = promptIds && { identity: this._fingerprint, promptIds, row };
    return decode(payload, { contract: this.contract, promptIds, tokens: this.bundle.tokenizer, base, predictor });
  }

  /** The model that writes around the anchors of a payload. */
  async modelOf(payload: Uint8Array | null): Promise<SharedModel> {
    return payload && isBound((await peek(payload)).codec) ? this._openedPredictive() : this._shared;
  }

  /**
   * Decodes a payload of codec predictive, one pass per position. Throws FingerprintError at the end where the tokens
   * yielded are wrong.
   */
  async *decodePredictive(
    payload: Uint8Array,
    promptIds: readonly number[],
    base: Base | undefined,
    costs: Costs,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<RawToken, AnchorSet> {
    const shared = await this._openedPredictive();
    const { contract, _fingerprint: fingerprint } = this;
    return yield* shared.lease(promptIds, async function* (engine) {
      const predictor = new EnginePredictor(engine, promptIds, contract, fingerprint, signal);
      const decoding = decodePredictive(Uint8Array.from(payload), { contract, base, predictor });
      try {
        for (;;) {
          const next = await decoding.next();
          if (next.done) return next.value;
          costs.prefilled();
          const { id, position, anchor, logprob } = next.value;
          yield { id, position, source: anchor ? "anchor" : "fill", logprob };
        }
      } finally {
        costs.passes += predictor.passes;
        if (costs.reused < 0) costs.reused = Math.max(0, predictor.reused);
      }
    });
  }

  /** Runs forced decoding after the tokens that the transcript holds already; see `forcedDecode`. */
  async *fill(
    promptIds: readonly number[],
    anchors: AnchorSet,
    options: FillOptions,
    transcript: Transcript,
    costs: Costs,
    interrupted?: () => boolean,
    model = this._shared,
  ): AsyncGenerator<Token, Stop | null> {
    const { ids } = transcript;
    const decoding = model.lease([...promptIds, ...ids], (engine) =>
      forcedDecode(engine, promptIds, anchors, options, costs, ids, interrupted),
    );
    for (;;) {
      const next = await decoding.next();
      if (next.done) return next.value;
      yield transcript.add(next.value);
    }
  }

  /** Writes the answer to a payload; without one, the device's own. */
  async *answer(
    payload: Uint8Array | null,
    promptIds: readonly number[],
    options: FillOptions,
    transcript: Transcript,
    costs: Costs,
  ): AsyncGenerator<Token, Outcome> {
    const header = payload && (await peek(payload));
    const unsure = header && doubt(header.extras.confidence);
    if (!payload || header?.codec !== "predictive") {
      const anchors = payload ? await this.decode(payload, promptIds) : this.noAnchors();
      const model = await this.modelOf(payload);
      const stop = yield* this.fill(promptIds, anchors, options, transcript, costs, undefined, model);
      return { anchors, stop: stop ?? "limit", doubt: unsure };
    }
    if (options.echoPrompt) {
      for (const [index, id] of promptIds.entries()) {
        yield transcript.add({ id, position: index - promptIds.length, source: "prompt", logprob: NaN });
      }
    }
    const most = options.maxTokens ?? Infinity;
    const decoding = this.decodePredictive(payload, promptIds, undefined, costs, options.signal);
    let next = await decoding.next();
    for (; !next.done; next = await decoding.next()) {
      if (next.value.position < most) yield transcript.add(next.value);
    }
    const anchors = next.value;
    const rest = { ...options, echoPrompt: false };
    const model = await this._openedPredictive();
    const stop = yield* this.fill(promptIds, anchors, rest, transcript, costs, undefined, model);
    return { anchors, stop: stop ?? "limit", doubt: unsure };
  }

  /** The prompt given, or the one that the payload carries. */
  async promptOf(payload: Uint8Array | null, prompt: Prompt | undefined): Promise<Prompt> {
    if (!payload) {
      if (prompt === undefined) throw new UsageError("fill", "a payload or a prompt", "neither");
      return prompt;
    }
    const header = await peek(payload);
    const carried = header.extras.prompt;
    const differs = carried !== null && prompt !== undefined && !isQuestion(asMessages(prompt), carried);
    if (differs) {
      const remedy = "Leave the prompt out, or ask for another payload";
      throw new UsageError("prompt", `the one that the payload carries (${carried.slice(0, 60)})`, prompt, remedy);
    }
    const text = prompt ?? carried;
    if (text !== null) return text;
    // A payload that cannot be used at all is refused for that, not for its prompt.
    if (!header.needsPrompt) await this.decode(payload, undefined);
    throw new UsageError("prompt", "the prompt beside a payload that does not carry it", "none");
  }

  /** Refuses all passes, and frees the model's memory after the one that runs. */
  close(): Promise<void> {
    this._closing ??= this._turns.close().then(async () => {
      await this._shared.close();
      await (await this._predictive?.catch(() => undefined))?.close();
    });
    return this._closing;
  }

  private _openedPredictive(): Promise<SharedModel> {
    this._turns.check();
    this._predictive ??= this._openPredictive().then((engine) => new SharedModel(engine, this._turns));
    return this._predictive;
  }
}

/** Whether messages are one question with this text. */
function isQuestion(messages: readonly ChatMessage[], text: string): boolean {
  const [first] = messages;
  return messages.length === 1 && first?.role === "user" && first.content === text;
}
