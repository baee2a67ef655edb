/**
 * EdgeWorker: an edge model in a worker, with the methods of `EdgeModel`. The page is never blocked.
 *
 *     const worker = new Worker(new URL("./edge.worker.js", import.meta.url), { type: "module" });
 *     const edge = await EdgeWorker.open(worker, "https://example.com/bundles/qwen", { onProgress });
 */

import { ServiceClient } from "../client/service-client.js";
import type { FillOptions } from "../decode/forced-decoder.js";
import type { AskOptions } from "../decode/online-answer.js";
import { Answer, type Cloud, type Edge, type ModelInfo, type OpenOptions } from "../edge-model.js";
import { type EdgeError, EngineError, UsageError } from "../errors.js";
import type { Prompt } from "../text/chat-template.js";
import type { AnswerEvent, FillStats, Token } from "../token.js";
import { type Call, fromPlain, type Reply } from "./messages.js";

/** Options of `EdgeModel.open` that can be sent to a worker. */
export type WorkerOptions = Omit<OpenOptions, "store" | "ort">;

interface Pending {
  item(item: unknown): void;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

export class EdgeWorker implements Edge {
  private readonly _pending = new Map<number, Pending>();
  private _calls = 0;
  private _closed: EdgeError | undefined;
  private _opened: ModelInfo | undefined;

  private constructor(private readonly _worker: Worker) {
    _worker.onmessage = ({ data }: MessageEvent<Reply>) => {
      const call = this._pending.get(data.id);
      if (!call) return;
      if ("item" in data) return call.item(data.item);
      this._pending.delete(data.id);
      if ("error" in data) call.reject(fromPlain(data.error));
      else call.resolve(data.result);
    };
    _worker.onerror = (event) => {
      this._reject(new EngineError("worker", "the script of the edge runtime", event.message || "one that fails"));
    };
  }

  /** Opens a model in a worker whose script imports `inversespec-edge-runtime/worker`; see `EdgeModel.open`. */
  static async open(worker: Worker, source: string | URL, options: WorkerOptions = {}): Promise<EdgeWorker> {
    const edge = new EdgeWorker(worker);
    const { signal, onProgress = () => {}, ...rest } = options;
    const address = globalThis.location ? new URL(`${source}`, globalThis.location.href).href : `${source}`;
    const call: Call = { call: "open", source: address, options: rest };
    edge._opened = (await edge._call(call, signal, onProgress as (item: unknown) => void)) as ModelInfo;
    return edge;
  }

  get info(): ModelInfo {
    return this._opened as ModelInfo;
  }

  fill(
    payload: Uint8Array | null,
    options: FillOptions & { readonly prompt?: Prompt | undefined } = {},
  ): Answer<Token> {
    const { signal, ...rest } = options;
    return this._answer<Token>({ call: "fill", payload, options: rest }, signal);
  }

  ask(cloud: Cloud, prompt: Prompt, options: AskOptions = {}): Answer<AnswerEvent> {
    const client = cloud instanceof ServiceClient ? cloud : new ServiceClient(cloud);
    const { signal, ...rest } = options;
    const call: Call = { call: "ask", service: client.url.href, client: client.options, prompt, options: rest };
    return this._answer<AnswerEvent>(call, signal);
  }

  countTokens(prompt: Prompt): Promise<number> {
    return this._call({ call: "countTokens", prompt }) as Promise<number>;
  }

  /** Ends all answers with UsageError, and the worker, which frees the model's memory. Idempotent. */
  async close(): Promise<void> {
    this._closed ??= new UsageError("worker", "an open model", "one that was closed", "Open it again");
    this._reject(this._closed);
    this._worker.terminate();
  }

  private _reject(error: EdgeError): void {
    for (const call of this._pending.values()) call.reject(error);
    this._pending.clear();
  }

  private _answer<T>(call: Call, signal: AbortSignal | undefined): Answer<T> {
    return new Answer<T>(() => this._items<T>(call, signal));
  }

  private async *_items<T>(call: Call, signal: AbortSignal | undefined): AsyncGenerator<T, FillStats> {
    const leaving = new AbortController();
    const both = signal ? AbortSignal.any([signal, leaving.signal]) : leaving.signal;
    const waiting: T[] = [];
    let wake = () => {};
    let ended = false;
    const result = this._call(call, both, (item) => {
      waiting.push(item as T);
      wake();
    });
    const done = () => {
      ended = true;
      wake();
    };
    result.then(done, done);
    try {
      for (;;) {
        for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
          signal?.throwIfAborted(); // what has not been read by then is not read
          yield item;
        }
        if (ended) return (await result) as FillStats;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    } finally {
      if (!ended) leaving.abort();
    }
  }

  private async _call(call: Call, signal?: AbortSignal, item: (item: unknown) => void = () => {}): Promise<unknown> {
    if (this._closed) throw this._closed;
    signal?.throwIfAborted();
    const id = this._calls++;
    const abort = () => this._worker.postMessage({ id, call: "abort", reason: signal?.reason });
    signal?.addEventListener("abort", abort);
    try {
      return await new Promise((resolve, reject) => {
        this._pending.set(id, { item, resolve, reject });
        this._worker.postMessage({ id, ...call });
      });
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }
}
