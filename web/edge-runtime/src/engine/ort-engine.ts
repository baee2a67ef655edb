/**
 * A bundle's graph on ONNX Runtime, with cache buffers of a fixed size, bound as past and as present.
 *
 * In Node.js the graph updates the buffers in place. WebAssembly has memory of its own, so there each pass copies them; on
 * a GPU they stay there. Rewinding shortens the mask, without a copy.
 */
import type { LoadedBundle } from "../bundle/bundle.js";
import { BundleFileError, EngineError } from "../errors.js";
import { Engine } from "./engine.js";
import { KvCache } from "./kv-cache.js";
import { Logits } from "./logits.js";
import type { Ort, OrtSession, OrtTensor } from "./ort.js";

export interface EngineSettings {
  readonly ort: Ort;
  /** Execution provider: "cpu" in Node.js; "wasm" or "webgpu" in browsers. */
  readonly provider: string;
  readonly threads: number;
}

export class OrtEngine extends Engine {
  private _cache: KvCache;

  private constructor(
    private readonly _session: OrtSession,
    bundle: LoadedBundle,
    private readonly _settings: EngineSettings,
  ) {
    const { model, context } = bundle.manifest;
    super(context, model.vocabSize);
    this._cache = new KvCache(_settings.ort, model, context);
  }

  /** @param portable runs the graph whose logits agree across processors; throws BundleFileError where there is none. */
  static async open(bundle: LoadedBundle, settings: EngineSettings, portable = false): Promise<OrtEngine> {
    const { ort, provider, threads } = settings;
    const options = {
      executionProviders: [provider],
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      logSeverityLevel: 3,
      // Patterns are cached per shape, and chunks vary in shape.
      enableMemPattern: false,
    };
    const graph = portable ? bundle.portable : bundle.graph;
    if (graph === null) {
      const remedy = "Convert the model again, or ask for codec compact";
      throw new BundleFileError(bundle.variant, "a portable graph", "a bundle of an earlier version", remedy);
    }
    const place = graph.path ?? bundle.manifest.variant(bundle.variant).graph;
    let session: OrtSession;
    try {
      if (graph.path !== null) {
        // From their path the weights are memory-mapped.
        session = await ort.InferenceSession.create(graph.path, options);
      } else {
        session = await ort.InferenceSession.create(graph.data, { ...options, externalData: bundle.weights });
      }
    } catch (error) {
      throw new EngineError(`${place}`, "a graph that ONNX Runtime can load", reason(error), "", { cause: error });
    }
    const engine = new OrtEngine(session, bundle, settings);
    const wanted = [
      "input_ids",
      "attention_mask",
      "rows",
      ...engine._cache.names.map((name) => `past_key_values.${name}`),
    ];
    const differ = [
      ...wanted.filter((name) => !session.inputNames.includes(name)),
      ...session.inputNames.filter((name) => !wanted.includes(name)),
    ];
    if (differ.length) {
      await engine.close();
      const expected = `the inputs of a model of ${bundle.manifest.model.layers} layers`;
      throw new EngineError(place, expected, `others: ${differ.slice(0, 4).join(", ")}`, "Convert the model again");
    }
    return engine;
  }

  protected async run(chunk: readonly number[], rows: readonly number[]): Promise<Logits> {
    const cache = this._cache;
    const total = this.length + chunk.length;
    try {
      cache.reserve(total, this.length);
      const feeds: Record<string, OrtTensor> = {
        input_ids: this._longs(chunk, [1, chunk.length]),
        attention_mask: this._longs(new Array<number>(total).fill(1), [1, total]),
        rows: this._longs(rows, [rows.length]),
      };
      const fetches: Record<string, OrtTensor | null> = { logits: null };
      cache.names.forEach((name, index) => {
        const tensor = cache.tensors[index];
        if (!tensor) return;
        feeds[`past_key_values.${name}`] = tensor;
        fetches[`present.${name}`] = this._inPlace ? tensor : null;
      });
      const results = await this._session.run(feeds, fetches);
      if (!this._inPlace) {
        const before = cache.tensors;
        cache.tensors = cache.names.map((name, index) => results[`present.${name}`] ?? (before[index] as OrtTensor));
        for (const tensor of before) tensor.dispose();
      }
      const logits = results.logits?.data;
      if (!(logits instanceof Float32Array)) throw new TypeError("no float32 logits");
      return new Logits(logits, this.vocab);
    } catch (error) {
      const expected = `a pass over ${chunk.length} tokens after ${this.length}`;
      const memory = /alloc|out of memory/i.test(reason(error));
      const remedy = memory ? "Use a shorter prompt, fewer tokens, or a smaller variant" : "";
      throw new EngineError("ONNX Runtime", expected, reason(error), remedy, { cause: error });
    }
  }

  override get cacheBytes(): number {
    return this._cache.bytes;
  }

  override fork(tokens: number): this {
    const other = super.fork(tokens);
    other._cache = this._cache.fork(tokens);
    return other;
  }

  close(): Promise<void> {
    return this._session.release();
  }

  private get _inPlace(): boolean {
    return this._settings.provider === "cpu";
  }

  private _longs(values: readonly number[], dims: readonly number[]): OrtTensor {
    return new this._settings.ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
