/** The part of ONNX Runtime's JavaScript API that is used: equal in onnxruntime-node and onnxruntime-web. */

export interface OrtTensor {
  readonly data: unknown;
  readonly dims: readonly number[];
  dispose(): void;
}

export interface OrtSession {
  readonly inputNames: readonly string[];
  run(
    feeds: Record<string, OrtTensor>,
    fetches: Record<string, OrtTensor | null>,
  ): Promise<Readonly<Record<string, OrtTensor>>>;
  release(): Promise<void>;
}

/** The module `onnxruntime-node`, `onnxruntime-web` or a part of it. */
export interface Ort {
  readonly InferenceSession: { create(model: unknown, options?: unknown): Promise<OrtSession> };
  readonly Tensor: new (type: unknown, data: unknown, dims: readonly number[]) => OrtTensor;
  readonly env: { readonly wasm: { numThreads?: number | undefined; wasmPaths?: unknown } };
}
