// The package as it is published: its files, its size, what publint and are-the-types-wrong say of it; and the code of
// the pages, which its declarations have to take.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
  const paths = packed.files.map(({ path }) => path);
  const fits = /^(dist\/.*\.(js|d\.ts)|dist\/model\.bin|README\.md|LICENSE|package\.json)$/;
  const wrong = paths.filter((path) => !fits.test(path));
  assert.deepEqual(wrong, [], "files that do not belong in the package");
  const needed = ["LICENSE", "README.md", "dist/index.d.ts", "dist/model.bin"].filter((path) => !paths.includes(path));
  assert.deepEqual(needed, [], "files that the package lacks");
  const archive = join(folder, packed.filename);
  console.log(run("npx", "publint", "run", archive, "--strict"));
  console.log(run("npx", "attw", archive, "--profile", "esm-only", "--no-emoji"));
  console.log(`${paths.length} files`);
  await checkSize();
  checkPages();
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

/** The pages' code, on the lines that it has there, type-checked behind declarations of what it does not make. */
function checkPages() {
  const names = `import type * as it from "inversespec-edge-runtime"; declare const key: string, prompt: string;
    declare const ticket: string, payload: Uint8Array, signal: AbortSignal, onProgress: it.OnProgress;
    declare function show(text: string, source?: it.Source): void; declare function write(text: string): void;
    declare function takeBack(position: number): void; declare function route(ticket: string, team: unknown): void;`;
  const out = join(root, "build/pages/"); // the package finds itself by its name there
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const compilerOptions = { noEmit: true, rootDir: ".", noUnusedLocals: false, types: [] };
  const config = { extends: "../../tsconfig.json", compilerOptions, include: ["."] };
  writeFileSync(join(out, "tsconfig.json"), JSON.stringify(config));
  let count = 0;
  for (const place of ["docs/start/", "docs/guides/", "web/edge-runtime/"]) {
    const pages = new URL(`../../${place}`, import.meta.url);
    for (const name of readdirSync(pages).filter((name) => name.endsWith(".md"))) {
      const text = readFileSync(new URL(name, pages), "utf8");
      for (const { 1: code, index } of text.matchAll(/^```js\n(.*?)^```/gms)) {
        const above = text.slice(0, index).replace(/./g, "");
        writeFileSync(join(out, `${place.replaceAll("/", "-")}${name}-${count++}.ts`), `${above}\n${code}${names}`);
      }
    }
  }
  execFileSync("npx", ["tsc", "-p", out], { cwd: root, stdio: "inherit" });
  console.log(`${count} blocks of code in pages`);
}
