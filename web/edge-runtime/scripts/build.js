// Builds dist/: the compiled library, and the file of the payload format that it reads.
import { execFileSync } from "node:child_process";
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { transformSync } from "esbuild";

const root = new URL("..", import.meta.url);
const dist = fileURLToPath(new URL("dist", root));
rmSync(dist, { recursive: true, force: true });
execFileSync("npx", ["tsc", "-p", fileURLToPath(root)], { stdio: "inherit" });
for (const [from, to] of [
  ["../../payload/model.bin", "dist/model.bin"],
  ["../../LICENSE", "LICENSE"],
]) {
  copyFileSync(new URL(from, root), new URL(to, root));
}

// Members whose names begin with _ are private and get short ones: no bundler would, and it is a tenth of the code.
let mangleCache = {};
for (const name of readdirSync(dist, { recursive: true }).filter((name) => name.endsWith(".js"))) {
  const options = { target: "es2022", mangleProps: /^_/, mangleCache };
  const made = transformSync(readFileSync(join(dist, name), "utf8"), options);
  mangleCache = made.mangleCache;
  writeFileSync(join(dist, name), made.code);
}
