/**
 * The script of a worker in which an edge model runs: `EdgeWorker` in the page talks to it.
 *
 *     // edge.worker.js
 *     import "inversespec-edge-runtime/worker";
 */
import { ServiceClient } from "../client/service-client.js";
import { type Answer, EdgeModel } from "../edge-model.js";
import { UsageError } from "../errors.js";
import { type Reply, type Request, toPlain } from "./messages.js";

/** What a worker's global scope has. */
interface Port {
  onmessage: ((event: MessageEvent<Request>) => void) | null;
  postMessage(message: Reply): void;
}

/** Serves one model on a port. */
export function serve(port: Port): void {
  const running = new Map<number, AbortController>();
  let model: EdgeModel | undefined;

  async function run(request: Exclude<Request, { call: "abort" }>, signal: AbortSignal): Promise<unknown> {
    const { id } = request;
    const send = (item: unknown) => port.postMessage({ id, item });
    const all = async (answer: Answer<unknown>) => {
      for await (const item of answer) send(item);
      return answer.stats;
    };
    if (request.call === "open") {
      model = await EdgeModel.open(request.source, { ...request.options, signal, onProgress: send });
      return model.info;
    }
    if (!model) throw new UsageError("worker", "an open model", "none");
    if (request.call === "fill") return all(model.fill(request.payload, { ...request.options, signal }));
    if (request.call === "countTokens") return model.countTokens(request.prompt);
    const client = new ServiceClient(request.service, request.client);
    return all(model.ask(client, request.prompt, { ...request.options, signal }));
  }

  port.onmessage = async ({ data: request }) => {
    const { id } = request;
    if (request.call === "abort") return running.get(id)?.abort(request.reason);
    const control = new AbortController();
    running.set(id, control);
    try {
      port.postMessage({ id, result: await run(request, control.signal) });
    } catch (error) {
      port.postMessage({ id, error: toPlain(error) });
    } finally {
      running.delete(id);
    }
  };
}

if (typeof WorkerGlobalScope !== "undefined" && globalThis instanceof WorkerGlobalScope) {
  serve(globalThis as unknown as Port);
}
