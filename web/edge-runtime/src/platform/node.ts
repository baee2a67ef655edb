/** What Node.js does in its own way: files of the package, folders of bundles, onnxruntime-node. */
import { readFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BundleFiles, verify } from "../bundle/files.js";
import { MANIFEST } from "../bundle/manifest.js";
import type { Bytes } from "../bytes.js";
import type { OpenOptions } from "../edge-model.js";
import type { Ort } from "../engine/ort.js";
import type { EngineSettings } from "../engine/ort-engine.js";
import { BundleFileError, BundleMissingError, EngineError } from "../errors.js";

/** The file `model.bin` of the payload format. */
export function modelFile(): Promise<Uint8Array> {
  return readFile(new URL("../model.bin", import.meta.url));
}

/** The files of a folder: of a path or a file URL; null for another address. */
export function folderFiles(source: string | URL): BundleFiles | null {
  const text = `${source}`;
  if (/^[a-z]+:\/\//i.test(text) && !text.startsWith("file:")) return null;
  const folder = text.startsWith("file:") ? fileURLToPath(text) : text;
  const path = (name: string) => join(folder, ...name.split("/"));
  return {
    where: folder,
    path,
    async manifest({ signal }): Promise<Bytes> {
      try {
        return Uint8Array.from(await readFile(path(MANIFEST), { signal }));
      } catch (error) {
        signal?.throwIfAborted();
        throw new BundleMissingError(folder, "a model bundle", `no readable ${MANIFEST} (${error})`);
      }
    },
    async read(name, record, { signal, onBytes }): Promise<Bytes> {
      let data: Bytes;
      try {
        data = Uint8Array.from(await readFile(path(name), { signal }));
      } catch (error) {
        signal?.throwIfAborted();
        throw new BundleFileError(path(name), "a readable file", error, "Copy the bundle again");
      }
      await verify(path(name), data, record);
      onBytes?.(data.length);
      return data;
    },
  };
}

/** ONNX Runtime and how it is to run. */
export async function defaultEngine({ ort, provider, threads }: OpenOptions): Promise<EngineSettings> {
  if (provider === "webgpu") throw new EngineError("provider", "cpu in Node.js", provider);
  // Two threads on one core share its multipliers.
  const own = Math.max(1, availableParallelism() >> 1);
  return { ort: ort ?? (await importOrt()), provider: "cpu", threads: threads ?? own };
}

async function importOrt(): Promise<Ort> {
  try {
    return (await import("onnxruntime-node")) as unknown as Ort;
  } catch (error) {
    throw new EngineError("ONNX Runtime", "the package onnxruntime-node", error, "npm install onnxruntime-node");
  }
}
