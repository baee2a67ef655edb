// Builds the demo into demo/dist: one folder that any static host can serve.
import { cpSync, rmSync } from "node:fs";
import { bundle } from "../scripts/bundle.js";

const here = new URL(".", import.meta.url);
const out = new URL("dist/", here);
const model = new URL("../../edge_runtime/bundles/testbed-qwen/", here);

rmSync(out, { recursive: true, force: true });
for (const name of ["index.html", "demo.css", "payloads.json"]) cpSync(new URL(name, here), new URL(name, out));
cpSync(new URL("../../cloud_anchor/serve/web/page.svg", here), new URL("page.svg", out));
const entries = [new URL("demo.ts", here), new URL("edge.worker.ts", here)];
const shell = ["./", ...(await bundle(entries, out, { splitting: true }))];
for (const name of ["bundle.json", "tokenizer.json", "chat_template.json", "fp32"]) {
  cpSync(new URL(name, model), new URL(`bundle/${name}`, out), { recursive: true });
}
rmSync(new URL("bundle/fp32/genai.onnx", out)); // for another engine
await bundle([new URL("sw.ts", here)], out, { define: { SHELL: JSON.stringify(shell) }, outdir: "./" });
