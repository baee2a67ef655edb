// Milliseconds a token and for 64 at once, by engine, variant and threads: the table of lab/results/device.md.
//
//     node scripts/bench.js [BUNDLE ...] [--repeat 20] [--write]
//
// --write: puts the table there, in place of the one that is there.
// BUNDLE: the shipped pair's by default; one of the shape of Qwen2.5-0.5B is made by `python -m lab.benches.full_size`.
// Beside transformers.js where it is installed: npm install --no-save @huggingface/transformers
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { benchBrowser } from "./bench-browser.js";

const PAGE = new URL("../../lab/results/device.md", import.meta.url);
const TABLE = /(?<=<!-- by make web-bench -->\n).*?(?=\n<!-- end -->)/s;
const OPTIONS = { repeat: { type: "string" }, write: { type: "boolean" } };
const VARIANTS = ["fp32", "int8", "int4"];
const script = fileURLToPath(new URL("bench-node.js", import.meta.url));
const shipped = fileURLToPath(new URL("../../edge_runtime/bundles/testbed-qwen", import.meta.url));
const { values, positionals } = parseArgs({ allowPositionals: true, options: OPTIONS });
const repeat = Number(values.repeat ?? 20);
const bundles = positionals.length ? positionals.map((name) => resolve(name)) : [shipped];

/** The rows of the table: figures, or the reason why there are none. */
function row(model, engine, variant, threads, found) {
  const reason =
    found instanceof Error && (/\w*Error: ([^\n]{1,90})/.exec(`${found.stderr ?? ""}${found}`)?.[1] ?? found);
  const cells = reason ? [`does not run: ${reason}`, ""] : [found.token.toFixed(2), found.chunk.toFixed(1)];
  print(`| ${[model, engine, variant, threads, ...cells].join(" | ")} |`);
}

const lines = [];
function print(text) {
  lines.push(text);
  console.log(text);
}

print(`${cpus()[0].model}, ${availableParallelism()} cores, Node.js ${process.versions.node}:\n`);
print("| model | engine | variant | threads | ms a token | ms for 64 |\n|---|---|---|---|---|---|");
for (const bundle of bundles) {
  const manifest = JSON.parse(readFileSync(join(bundle, "bundle.json"), "utf8"));
  const model = manifest.model.id;
  const variants = VARIANTS.filter((name) => name in manifest.variants);
  for (const engine of ["onnxruntime-node", ...(hasTransformers() ? ["transformers.js"] : [])]) {
    for (const variant of variants) {
      for (const threads of [1, 2]) {
        const words = [script, engine, bundle, variant, threads, repeat].map(String);
        const found = promisify(execFile)(process.execPath, words).then(({ stdout }) => JSON.parse(stdout));
        row(model, engine, variant, threads, await found.catch((error) => error));
      }
    }
  }
  for await (const [variant, threads, found] of benchBrowser(bundle, variants, repeat)) {
    row(model, "onnxruntime-web", variant, threads, found);
  }
}
const page = readFileSync(PAGE, "utf8").replace(TABLE, () => lines.join("\n"));
if (values.write) writeFileSync(PAGE, page);

function hasTransformers() {
  try {
    return Boolean(import.meta.resolve("@huggingface/transformers"));
  } catch {
    return false;
  }
}
