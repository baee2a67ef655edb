/** What a browser does in its own way: files of the package, onnxruntime-web. */
import type { BundleFiles } from "../bundle/files.js";
import type { OpenOptions } from "../edge-model.js";
import type { Ort } from "../engine/ort.js";
import type { EngineSettings } from "../engine/ort-engine.js";
import { EngineError } from "../errors.js";

/** Beyond so many, threads of a small model wait for one another. */
const MAX_THREADS = 4;

/** The file `model.bin` of the payload format. */
export async function modelFile(): Promise<Uint8Array> {
  const response = await fetch(new URL("../model.bin", import.meta.url));
  if (!response.ok) throw new Error(`model.bin: expected the file beside the code, found status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A browser opens no folders. */
export function folderFiles(_source: string | URL): BundleFiles | null {
  return null;
}

/** ONNX Runtime and how it is to run. */
export async function defaultEngine(options: OpenOptions): Promise<EngineSettings> {
  const provider = options.provider === "webgpu" ? "webgpu" : "wasm";
  if (provider === "webgpu" && !(await adapter())) {
    throw new EngineError("provider", "a browser with WebGPU", "one without", 'Open it with provider "cpu"');
  }
  const ort = options.ort ?? (await importOrt(provider));
  const isolated = globalThis.crossOriginIsolated === true;
  const own = Math.min(MAX_THREADS, Math.max(1, (navigator.hardwareConcurrency ?? 2) >> 1));
  const threads = isolated ? (options.threads ?? own) : 1;
  ort.env.wasm.numThreads = threads;
  if (options.wasmPaths !== undefined) ort.env.wasm.wasmPaths = options.wasmPaths;
  return { ort, provider, threads };
}

/** The browser's graphics processor, null where it gives none; the types that this is built with do not have it. */
async function adapter(): Promise<object | null> {
  const { gpu } = navigator as unknown as { gpu?: { requestAdapter(): Promise<object | null> } };
  return (await gpu?.requestAdapter()) ?? null;
}

async function importOrt(provider: "wasm" | "webgpu"): Promise<Ort> {
  try {
    const found = provider === "wasm" ? await import("onnxruntime-web/wasm") : await import("onnxruntime-web/webgpu");
    return found as unknown as Ort;
  } catch (error) {
    throw new EngineError("ONNX Runtime", "the package onnxruntime-web", error, "npm install onnxruntime-web");
  }
}
