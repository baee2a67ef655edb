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
  const { outputFiles } = await build({
    entryPoints: [`${root}dist/index.js`],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    platform: "browser",
    external: ["onnxruntime-*"],
    write: false,
  });
  const code = outputFiles[0]?.contents ?? new Uint8Array(0);
  const kilobytes = code.length / 1000;
  const packedKilobytes = (gzipSync(code).length / 1000).toFixed(1);
  console.log(`${packed.files.length} files; ${kilobytes.toFixed(1)} kB minified, ${packedKilobytes} kB gzipped,`);
  console.log("without ONNX Runtime and model.bin (51.7 kB)");
  assert.ok(kilobytes < 92, `expected at most 92 kB minified, found ${kilobytes}`);
} finally {
  rmSync(folder, { recursive: true });
}
