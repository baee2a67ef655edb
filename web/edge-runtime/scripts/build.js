// Builds dist/: the compiled library, and the file of the payload format that it reads.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("..", import.meta.url);
rmSync(new URL("dist", root), { recursive: true, force: true });
execFileSync("npx", ["tsc", "-p", fileURLToPath(root)], { stdio: "inherit" });
for (const [from, to] of [
  ["../../payload/model.bin", "dist/model.bin"],
  ["../../LICENSE", "LICENSE"],
]) {
  copyFileSync(new URL(from, root), new URL(to, root));
}
