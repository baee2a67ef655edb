// Builds the part of the service's page that runs the model in the browser, into page/dist: for `serve --page`.
import { rmSync } from "node:fs";
import { bundle } from "../scripts/bundle.js";

const here = new URL(".", import.meta.url);
const out = new URL("dist/", here);
rmSync(out, { recursive: true, force: true });
const files = await bundle([new URL("device.ts", here), new URL("../demo/edge.worker.ts", here)], out);
const shell = ["./", "page.css", "page.js", "page.svg", ...files.map((name) => `device/${name}`)];
await bundle([new URL("../demo/sw.ts", here)], out, { define: { SHELL: JSON.stringify(shell) }, outdir: "./" });
