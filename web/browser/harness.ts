/** What a test page has in its global scope: the library, and a worker with it. */
import * as library from "inversespec-edge-runtime";

Object.assign(globalThis, {
  library,
  openWorker: (source: string, options: library.WorkerOptions) =>
    library.EdgeWorker.open(
      new Worker(new URL("./edge.worker.js", import.meta.url), { type: "module" }),
      source,
      options,
    ),
});
