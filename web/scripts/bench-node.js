// One measurement in a process of its own: `node scripts/bench-node.js ENGINE BUNDLE VARIANT THREADS REPEAT` prints JSON.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measure } from "./measure.js";

const [engine, bundle, variant, threads, repeat] = process.argv.slice(2);

async function ours() {
  const [{ loadBundle }, { OrtEngine }, { defaultEngine, folderFiles }] = await Promise.all(
    ["bundle/bundle.js", "engine/ort-engine.js", "platform/node.js"].map(
      (name) => import(`../edge-runtime/dist/${name}`),
    ),
  );
  const settings = await defaultEngine({ threads: Number(threads) });
  return measure(await OrtEngine.open(await loadBundle(folderFiles(bundle), variant), settings), Number(repeat));
}

/** The bundle's graph for other engines, which has the same weights, in transformers.js. */
async function transformers() {
  const { AutoModelForCausalLM, env, Tensor } = await import("@huggingface/transformers");
  const { model } = JSON.parse(readFileSync(join(bundle, "bundle.json"), "utf8"));
  const folder = mkdtempSync(join(tmpdir(), "transformers-"));
  try {
    mkdirSync(join(folder, "model/onnx"), { recursive: true });
    const config = { ...model, model_type: "qwen2", architectures: [model.architecture] };
    writeFileSync(join(folder, "model/config.json"), JSON.stringify(config));
    // Copies: ONNX Runtime follows no link out of the graph's folder.
    cpSync(join(bundle, variant, "genai.onnx"), join(folder, "model/onnx/model.onnx"));
    cpSync(join(bundle, variant, "model.onnx.data"), join(folder, "model/onnx/model.onnx.data"));
    Object.assign(env, { localModelPath: folder, allowRemoteModels: false });
    const session_options = { intraOpNumThreads: Number(threads) };
    const loaded = await AutoModelForCausalLM.from_pretrained("model", { dtype: "fp32", session_options });
    const tensor = (size, value) => new Tensor("int64", BigInt64Array.from({ length: size }, value), [1, size]);
    const seconds = async (max_new_tokens, size = 64) => {
      const times = [];
      for (let round = 0; round <= repeat; round++) {
        const inputs = { input_ids: tensor(size, (_, at) => BigInt(at)), attention_mask: tensor(size, () => 1n) };
        const before = performance.now();
        await loaded.generate({ ...inputs, max_new_tokens, min_new_tokens: max_new_tokens, do_sample: false });
        times.push(performance.now() - before);
      }
      return times.slice(1).sort((a, b) => a - b)[repeat >> 1];
    };
    const [first, more] = [await seconds(1), await seconds(17)];
    return { token: (more - first) / 16, chunk: first };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

console.log(JSON.stringify(await (engine === "transformers.js" ? transformers() : ours())));
process.exit();
