/** Bundle: a manifest, and the files of one variant that it lists, read and verified. */
import { type Bytes, occurrences, strictUtf8, utf8 } from "../bytes.js";
import { BundleFileError, BundleSchemaError } from "../errors.js";
import { ChatTemplate } from "../text/chat-template.js";
import { Tokenizer } from "../text/tokenizer.js";
import type { BundleFiles, OnProgress } from "./files.js";
import { type FileRecord, Manifest, TEMPLATE, TOKENIZER } from "./manifest.js";

/** An ONNX file; its path where the files have one. */
export interface Graph {
  readonly data: Bytes;
  readonly path: string | null;
}

/** The files of one variant. */
export interface LoadedBundle {
  readonly manifest: Manifest;
  readonly variant: string;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  /** The ONNX file, and the one whose logits agree across processors; null in a bundle of an earlier version. */
  readonly graph: Graph;
  readonly portable: Graph | null;
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
  const graphs = [variant.graph, ...(variant.portable === null ? [] : [variant.portable])];
  const needed = [...variant.files].filter(([path]) => graphs.includes(path) || !path.endsWith(".onnx"));
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
  const weights = needed
    .filter(([path]) => !graphs.includes(path) && path.startsWith(folder))
    .map(([path]) => ({ path: path.slice(folder.length), data: bytes(path) }));
  for (const path of graphs) checkWeights(path, bytes(path), new Set(weights.map((file) => file.path)));
  const graph = (path: string) => ({ data: bytes(path), path: files.path?.(path) ?? null });
  return {
    manifest,
    variant: name,
    tokenizer: await Tokenizer.open(parseJson(TOKENIZER, bytes(TOKENIZER))),
    template: new ChatTemplate(parseJson(TEMPLATE, bytes(TEMPLATE))),
    graph: graph(variant.graph),
    portable: variant.portable === null ? null : graph(variant.portable),
    weights,
  };
}

const KEY = utf8("location");

/**
 * Throws BundleFileError where a graph's weights lie in a file that is not among these. The key of such a file stands in the
 * graph's bytes, however they are encoded; one in another form than converters write is refused too.
 */
function checkWeights(where: string, graph: Bytes, files: ReadonlySet<string>): void {
  for (const at of occurrences(graph, KEY)) {
    // StringStringEntryProto: field 1 the key, field 2 the file's name after its length.
    const name = at + KEY.length + 2;
    const size = graph[name - 1] ?? 0;
    const isField = graph[at - 2] === 0x0a && graph[at - 1] === KEY.length && graph[name - 2] === 0x12 && size < 0x80;
    const found = isField ? strictUtf8(graph.subarray(name, name + size)) : null;
    if (found !== null && files.has(found)) continue;
    throw new BundleFileError(where, "weights in files that bundle.json lists", found ?? "others", "Convert it again");
  }
}

function parseJson(name: string, data: Bytes): unknown {
  try {
    return JSON.parse(strictUtf8(data) ?? "");
  } catch (error) {
    throw new BundleSchemaError(name, "JSON in UTF-8", error instanceof Error ? error.message : error);
  }
}
