// The package as it is published: its files, its size, and what publint and are-the-types-wrong say of it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../edge-runtime/", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "edge-runtime-"));
const run = (program, ...args) => execFileSync(program, args, { cwd: root, encoding: "utf8" });
try {
  const [packed] = JSON.parse(run("npm", "pack", "--json", "--ignore-scripts", "--pack-destination", folder));
  const wrong = packed.files
    .map(({ path }) => path)
    .filter((path) => !/^(dist\/.*\.(js|d\.ts)|dist\/model\.bin|README\.md|LICENSE|package\.json)$/.test(path));
  assert.deepEqual(wrong, [], "files that do not belong in the package");
  for (const needed of ["LICENSE", "README.md", "dist/index.d.ts", "dist/model.bin"]) {
    assert.ok(
      packed.files.some(({ path }) => path === needed),
      `expected ${needed} in the package`,
    );
  }
  const archive = join(folder, packed.filename);
  console.log(run("npx", "publint", "run", archive, "--strict"));
  console.log(run("npx", "attw", archive, "--profile", "esm-only", "--no-emoji"));
  console.log(`${packed.files.length} files`);
  await checkSize();
} finally {
  rmSync(folder, { recursive: true });
}

/** What a page loads at once to open a model, fill and ask; and the whole package, which has more for rare payloads. */
async function checkSize() {
  for (const [what, contents, most, split] of [
    ["open, fill, ask", 'export { EdgeModel } from "./dist/index.js"', 65, true],
    ["the same in a worker", 'import "./dist/worker/serve.js"', 66, true],
    ["the page beside a worker", 'export { EdgeWorker } from "./dist/index.js"', 12, true],
    ["everything", 'export * from "./dist/index.js"', 81, false],
  ]) {
    const { outputFiles, metafile } = await build({
      stdin: { contents, resolveDir: root },
      outdir: folder,
      bundle: true,
      splitting: split,
      minify: true,
      format: "esm",
      target: "es2022",
      platform: "browser",
      external: ["onnxruntime-*"],
      metafile: true,
      write: false,
    });
    const loaded = new Set(
      Object.keys(metafile.outputs).filter((name) => metafile.outputs[name].entryPoint === "<stdin>"),
    );
    for (const name of loaded) {
      for (const { kind, path } of metafile.outputs[name].imports) if (kind === "import-statement") loaded.add(path);
    }
    const code = outputFiles.filter(({ path }) => [...loaded].some((name) => path.endsWith(name.replace(/^.*\//, ""))));
    const size = (of) => code.reduce((sum, { contents }) => sum + of(contents).length, 0) / 1000;
    const minified = size((contents) => contents);
    console.log(`${what}: ${minified.toFixed(1)} kB minified, ${size(gzipSync).toFixed(1)} kB gzipped`);
    assert.ok(minified <= most, `expected at most ${most} kB minified, found ${minified}`);
  }
  console.log("without ONNX Runtime and model.bin (51.7 kB)");
}
