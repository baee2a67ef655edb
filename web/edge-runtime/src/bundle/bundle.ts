/** Bundle: a manifest, and the files of one variant that it lists, read and verified. */
import { type Bytes, strictUtf8 } from "../bytes.js";
import { BundleSchemaError } from "../errors.js";
import { ChatTemplate } from "../text/chat-template.js";
import { Tokenizer } from "../text/tokenizer.js";
import type { BundleFiles, OnProgress } from "./files.js";
import { type FileRecord, Manifest, TEMPLATE, TOKENIZER } from "./manifest.js";

/** The files of one variant. */
export interface LoadedBundle {
  readonly manifest: Manifest;
  readonly variant: string;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  /** The ONNX file; its path where the files have one. */
  readonly graph: Bytes;
  readonly graphPath: string | null;
  /** Files that the graph refers to, by their path from the graph's folder. */
  readonly weights: readonly { readonly path: string; readonly data: Bytes }[];
}

export async function loadBundle(
  files: BundleFiles,
  wanted: string | undefined,
  signal: AbortSignal | undefined,
  onProgress: OnProgress = () => {},
): Promise<LoadedBundle> {
  const manifest = new Manifest(await files.manifest({ signal }));
  const name = wanted ?? manifest.defaultVariant;
  const variant = manifest.variant(name);
  const folder = variant.graph.slice(0, variant.graph.lastIndexOf("/") + 1);
  // Other graphs of the variant are for other engines.
  const needed = [...variant.files].filter(([path]) => path === variant.graph || !path.endsWith(".onnx"));
  const records = new Map<string, FileRecord>(needed);
  for (const path of [TOKENIZER, TEMPLATE]) {
    const record = manifest.files.get(path);
    if (record) records.set(path, record);
  }
  const total = [...records.values()].reduce((sum, record) => sum + record.size, 0);
  const data = new Map<string, Bytes>();
  let before = 0;
  for (const [file, record] of records) {
    const onBytes = (loaded: number) => onProgress({ loaded: before + loaded, total, file });
    data.set(file, await files.read(file, record, { signal, onBytes }));
    before += record.size;
  }
  const bytes = (path: string) => data.get(path) ?? new Uint8Array(0);
  return {
    manifest,
    variant: name,
    tokenizer: await Tokenizer.open(parseJson(TOKENIZER, bytes(TOKENIZER))),
    template: new ChatTemplate(parseJson(TEMPLATE, bytes(TEMPLATE))),
    graph: bytes(variant.graph),
    graphPath: files.path?.(variant.graph) ?? null,
    weights: needed
      .filter(([path]) => path !== variant.graph)
      .map(([path]) => ({ path: path.startsWith(folder) ? path.slice(folder.length) : path, data: bytes(path) })),
  };
}

function parseJson(name: string, data: Bytes): unknown {
  try {
    return JSON.parse(strictUtf8(data) ?? "");
  } catch (error) {
    throw new BundleSchemaError(name, "JSON in UTF-8", error instanceof Error ? error.message : error);
  }
}
