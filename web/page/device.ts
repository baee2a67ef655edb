/** The device's part of the service's page: the model of the bundle that the service gives, in a worker of this tab. */
import { type Edge, EdgeWorker, type WorkerOptions } from "inversespec-edge-runtime";

export { peek } from "inversespec-edge-runtime";

/** Opens the model; it is fetched once and kept for the next visit. */
export function open(variant: string, key: string | undefined, onProgress: WorkerOptions["onProgress"]): Promise<Edge> {
  const worker = new Worker(new URL("./edge.worker.js", import.meta.url), { type: "module" });
  return EdgeWorker.open(worker, new URL("../../v1/bundle/", import.meta.url), { variant, key, onProgress });
}
