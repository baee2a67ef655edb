// Milliseconds a token and for a chunk of 64, by variant and threads: the table of edge-runtime/README.md.
//
//     node scripts/bench.js [BUNDLE] [REPEAT]
import { fileURLToPath } from "node:url";
import { loadBundle } from "../edge-runtime/dist/bundle/bundle.js";
import { OrtEngine } from "../edge-runtime/dist/engine/ort-engine.js";
import { defaultEngine, folderFiles } from "../edge-runtime/dist/platform/node.js";
import { benchBrowser } from "./bench-browser.js";

const shipped = fileURLToPath(new URL("../../edge_runtime/bundles/testbed-qwen", import.meta.url));
const folder = process.argv[2] ?? shipped;
const repeat = Number(process.argv[3] ?? 20);
const DEPTH = 64;

async function measure(engine, size) {
  const ids = Array.from({ length: size }, (_, at) => (at * 37) % 200);
  const times = [];
  for (let round = 0; round <= repeat; round++) {
    engine.rewind(DEPTH);
    const before = performance.now();
    await engine.append(ids, [size - 1]);
    times.push(performance.now() - before);
  }
  return times.slice(1).sort((a, b) => a - b)[repeat >> 1];
}

console.log("| engine | variant | threads | ms a token | ms for 64 |\n|---|---|---|---|---|");
for (const variant of ["fp32", "int8", "int4"]) {
  const bundle = await loadBundle(folderFiles(folder), variant);
  for (const threads of [1, 2]) {
    const engine = await OrtEngine.open(bundle, await defaultEngine({ threads }));
    await engine.append(new Array(DEPTH).fill(1), []);
    const [one, many] = [await measure(engine, 1), await measure(engine, 64)];
    console.log(`| onnxruntime-node | ${variant} | ${threads} | ${one.toFixed(2)} | ${many.toFixed(1)} |`);
    await engine.close();
  }
}
await benchBrowser(folder);
