// Bundles scripts for browsers; ONNX Runtime stays a file of its own, as its threads are workers that load it alone.
import { copyFileSync, mkdirSync, readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ORT = new URL("../node_modules/onnxruntime-web/dist/", import.meta.url);
const MODEL_FILE = new URL("../../payload/model.bin", import.meta.url);

const ortFile = {
  name: "ort",
  setup(it) {
    it.onResolve({ filter: /^onnxruntime-web\// }, ({ path }) => ({
      path: `./ort.${path.split("/")[1]}.bundle.min.mjs`,
      external: true,
    }));
  },
};

/** Bundles `entries` into `out`/js, with the files that they load beside them; returns the paths of all of them. */
export async function bundle(entries, out, { define = {}, outdir = "js/", splitting = false } = {}) {
  const folder = new URL(outdir, out);
  mkdirSync(folder, { recursive: true });
  await build({
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    platform: "browser",
    plugins: [ortFile],
    entryPoints: entries.map((entry) => fileURLToPath(entry)),
    outdir: fileURLToPath(folder),
    entryNames: "[name]",
    splitting,
    define,
  });
  if (outdir !== "js/") return [];
  copyFileSync(MODEL_FILE, new URL("model.bin", out));
  for (const name of ["ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"]) {
    copyFileSync(new URL(name, ORT), new URL(name, folder));
  }
  const found = readdirSync(out, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  return found.map((each) => relative(fileURLToPath(out), join(each.parentPath, each.name)));
}
