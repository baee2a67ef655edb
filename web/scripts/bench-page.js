/** What the page of the benchmark has in its global scope: a measurement. */
import { loadBundle } from "../edge-runtime/dist/bundle/bundle.js";
import { RemoteFiles } from "../edge-runtime/dist/bundle/remote-files.js";
import { OrtEngine } from "../edge-runtime/dist/engine/ort-engine.js";
import { defaultEngine } from "../edge-runtime/dist/platform/browser.js";
import { measure } from "./measure.js";

globalThis.bench = async (variant, threads, repeat) => {
  const files = new RemoteFiles(new URL("bundle/", location.href), null, undefined);
  const engine = await OrtEngine.open(await loadBundle(files, variant), await defaultEngine({ threads }));
  return measure(engine, repeat);
};
