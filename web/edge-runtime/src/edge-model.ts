/**
 * EdgeModel: a loaded edge model that turns payloads into text.
 *
 *     const edge = await EdgeModel.open("https://example.com/bundles/qwen", { onProgress });
 *     for await (const token of edge.fill(payload, { prompt })) show(token.text);
 *     await edge.close();
 */

import { defaultEngine, folderFiles } from "#platform";
import { loadBundle } from "./bundle/bundle.js";
import type { BundleFiles, OnProgress } from "./bundle/files.js";
import { RemoteFiles } from "./bundle/remote-files.js";
import { type BundleStore, defaultStore } from "./bundle/store.js";
import { ServiceClient } from "./client/service-client.js";
import { Costs, type FillOptions } from "./decode/forced-decoder.js";
import { Model, type Outcome } from "./decode/model.js";
import { type AskOptions, OnlineAnswer } from "./decode/online-answer.js";
import type { Transcript } from "./decode/transcript.js";
import type { Ort } from "./engine/ort.js";
import { OrtEngine } from "./engine/ort-engine.js";
import { UsageError } from "./errors.js";
import type { Prompt } from "./text/chat-template.js";
import type { AnswerEvent, FillStats, ServiceReport, Token } from "./token.js";

/** What computes the model's operators: the processor, or the graphics processor of a browser. */
export type Provider = "cpu" | "webgpu";

/** Options of `EdgeModel.open`. */
export interface OpenOptions {
  /** One of the bundle's variants; the bundle's default by default. */
  readonly variant?: string | undefined;
  /** Number of threads; in browsers more than 1 only where the page is cross-origin isolated. */
  readonly threads?: number | undefined;
  /** "webgpu" may change tokens where two are nearly as probable, and is no faster for a model of a few megabytes. */
  readonly provider?: Provider | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called while the bundle's files are fetched, with bytes. */
  readonly onProgress?: OnProgress | undefined;
  /** Where fetched files are kept; the browser's Cache API by default, null for nowhere. */
  readonly store?: BundleStore | null | undefined;
  /** Sent as `Authorization: Bearer` with every request for a file. */
  readonly key?: string | undefined;
  /** ONNX Runtime; by default `onnxruntime-node` or `onnxruntime-web`, imported on first use. */
  readonly ort?: Ort | undefined;
  /** Where onnxruntime-web finds its WebAssembly files; see its `env.wasm.wasmPaths`. */
  readonly wasmPaths?: unknown;
}

/** An anchor service: its address, or a client with a key and limits. */
export type Cloud = string | URL | ServiceClient;

/**
 * What an open model does, in this thread (`EdgeModel`) or in a worker (`EdgeWorker`).
 *
 * It takes any number of callers, and each gets the text that it would get alone: answers have caches of their own, and their
 * passes take turns in the order in which they are asked for. An answer reuses what an earlier one has read of its prompt; one
 * that is left holds nobody up. After `close` everything is rejected.
 */
export interface Edge {
  readonly info: ModelInfo;
  fill(payload: Uint8Array | null, options?: FillOptions & { readonly prompt?: Prompt | undefined }): Answer<Token>;
  ask(cloud: Cloud, prompt: Prompt, options?: AskOptions): Answer<AnswerEvent>;
  /** Number of tokens of a prompt in the chat template. */
  countTokens(prompt: Prompt): Promise<number>;
  close(): Promise<void>;
}

/** Description of an open model. */
export interface ModelInfo {
  readonly id: string;
  readonly variant: string;
  readonly variants: readonly string[];
  /** Maximum number of tokens of prompt and answer together. */
  readonly context: number;
  /** Identity of the contract that payloads for this bundle must match; payloads carry its first two digits. */
  readonly contract: string;
  /** The doubt from which on an answer is better not shown, as measured with this bundle's cloud model; null where not. */
  readonly notSureFrom: number | null;
  /** "cpu" in Node.js; "wasm" or "webgpu" in a browser. */
  readonly provider: string;
  readonly threads: number;
}

/** An answer: iterate over it once, then read its statistics. */
export class Answer<T> implements AsyncIterable<T> {
  /** Statistics, once the iteration has ended; rejected where it has thrown or was left early. */
  readonly stats: Promise<FillStats>;
  private _settle: { resolve(stats: FillStats): void; reject(error: unknown): void } | undefined;
  private _taken = false;

  constructor(private readonly _run: () => AsyncGenerator<T, FillStats>) {
    this.stats = new Promise((resolve, reject) => {
      this._settle = { resolve, reject };
    });
    this.stats.catch(() => {}); // whoever reads the iteration sees its error
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
    if (this._taken) throw new UsageError("answer", "one iteration", "a second one");
    this._taken = true;
    try {
      this._settle?.resolve(yield* this._run());
    } catch (error) {
      this._settle?.reject(error);
      throw error;
    } finally {
      this._settle?.reject(new UsageError("stats", "an iteration to its end", "one that was left"));
    }
  }
}

export class EdgeModel implements Edge {
  private constructor(
    private readonly _model: Model,
    readonly info: ModelInfo,
    private readonly _loadSeconds: number,
  ) {}

  /**
   * Fetches, verifies and loads a bundle.
   *
   * @param source address of the folder that holds `bundle.json`; in Node.js also the path of a folder.
   * @throws BundleError where it is no complete bundle, EngineError where the model cannot be loaded,
   *   CloudUnavailableError where it cannot be fetched, and the signal's reason.
   */
  static async open(source: string | URL, options: OpenOptions = {}): Promise<EdgeModel> {
    const started = performance.now();
    const bundle = await loadBundle(filesOf(source, options), options.variant, options.signal, options.onProgress);
    const settings = await defaultEngine(options);
    const engine = await OrtEngine.open(bundle, settings);
    options.signal?.throwIfAborted();
    // Predictive payloads need the writer's exact numbers: always on the processor.
    const exact = settings.provider === "webgpu" ? await defaultEngine({ ...options, provider: "cpu" }) : settings;
    const model = new Model(bundle, engine, () => OrtEngine.open(bundle, exact, true));
    const { manifest, variant } = bundle;
    const info = {
      id: manifest.model.id,
      variant,
      variants: [...manifest.variants.keys()].sort(),
      context: manifest.context,
      contract: manifest.contract.identity,
      notSureFrom: manifest.notSureFrom,
      provider: settings.provider,
      threads: settings.threads,
    };
    return new EdgeModel(model, info, (performance.now() - started) / 1000);
  }

  /**
   * The answer around the anchors of a payload; with null, the device's own. Decoding is greedy, so equal input gives equal
   * tokens.
   *
   * A payload of codec predictive is decoded while its tokens come, one pass each, and checked at its end: where the
   * iteration throws FingerprintError, the tokens so far are wrong, and a payload of codec compact can be used.
   *
   * @param options.prompt the user's prompt; may be left out where the payload carries it.
   */
  fill(
    payload: Uint8Array | null,
    options: FillOptions & { readonly prompt?: Prompt | undefined } = {},
  ): Answer<Token> {
    return new Answer(() => this._filling(payload, options));
  }

  /**
   * The answer to a prompt with an anchor service. Where it refines the text, `retract` takes back tokens that a payload
   * contradicts, and the text in the end is the one that the last payload would have given from the start.
   */
  ask(cloud: Cloud, prompt: Prompt, options: AskOptions = {}): Answer<AnswerEvent> {
    const client = cloud instanceof ServiceClient ? cloud : new ServiceClient(cloud);
    return new Answer(() => this._asking(client, prompt, options));
  }

  async countTokens(prompt: Prompt): Promise<number> {
    return this._model.promptIds(prompt).length;
  }

  /** Ends all answers with UsageError, and frees the model's memory. Idempotent. */
  close(): Promise<void> {
    return this._model.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async *_filling(
    payload: Uint8Array | null,
    options: FillOptions & { readonly prompt?: Prompt | undefined },
  ): AsyncGenerator<Token, FillStats> {
    const costs = new Costs();
    const transcript = this._model.transcript();
    const promptIds = this._model.promptIds(await this._model.promptOf(payload, options.prompt));
    const outcome = yield* this._model.answer(payload, promptIds, options, transcript, costs);
    return this._stats(outcome, promptIds.length, transcript, costs, null);
  }

  private async *_asking(
    client: ServiceClient,
    prompt: Prompt,
    options: AskOptions,
  ): AsyncGenerator<AnswerEvent, FillStats> {
    const costs = new Costs();
    const transcript = this._model.transcript();
    const answer = new OnlineAnswer(this._model, client, prompt, options, transcript, costs);
    const outcome = yield* answer.run();
    const stats = this._stats(outcome, answer.promptIds.length, transcript, costs, answer.report);
    yield { type: "done", stats };
    return stats;
  }

  private _stats(
    outcome: Outcome,
    promptTokens: number,
    transcript: Transcript,
    costs: Costs,
    service: ServiceReport | null,
  ): FillStats {
    const limit = this.info.notSureFrom;
    return {
      passes: costs.passes,
      anchors: outcome.anchors.size,
      promptTokens,
      tokens: transcript.tokens.length,
      loadSeconds: this._loadSeconds,
      prefillSeconds: costs.prefillSeconds,
      fillSeconds: costs.seconds - costs.prefillSeconds,
      agreement: transcript.agreement,
      doubt: outcome.doubt,
      notSure: outcome.doubt === null || limit === null ? null : outcome.doubt >= limit,
      reused: Math.min(Math.max(costs.reused, 0), promptTokens),
      stop: outcome.stop,
      tail: transcript.tail(),
      service,
    };
  }
}

/** The files at an address; in Node.js, what is no address is a folder. */
function filesOf(source: string | URL, options: OpenOptions): BundleFiles {
  const folder = folderFiles(source);
  if (folder) return folder;
  const base = globalThis.location?.href;
  if (!URL.canParse(`${source}`, base)) throw new UsageError("bundle", "the address of its folder", `${source}`);
  const store = options.store === undefined ? defaultStore() : options.store;
  return new RemoteFiles(new URL(`${source}`, base), store, options.key);
}
