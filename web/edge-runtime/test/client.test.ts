/** The service's client and answers with a service, against a scripted server; bundles that are fetched. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { after, test } from "node:test";
import {
  type AnswerEvent,
  type BundleStore,
  type ChatMessage,
  CloudRefusedError,
  CloudUnavailableError,
  EdgeModel,
  EdgeSession,
  ServiceClient,
  UsageError,
} from "../dist/index.js";
import { BUNDLE, EDGE, type Fill } from "./edge-vectors.js";
import { hex } from "./vectors.js";

const servers: Server[] = [];
async function served(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A service that answers with these payloads: one at `/v1/anchors`, all as events. */
function service(payloads: [string, boolean][], seen: Record<string, unknown>[] = []): RequestListener {
  return async (request, response) => {
    seen.push((await json(request)) as Record<string, unknown>);
    if (request.url === "/v1/anchors") {
      response.writeHead(200, { "Content-Type": "application/octet-stream" });
      response.end(hex(payloads.at(-1)?.[0] ?? ""));
      return;
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const [payload, delta] of payloads) {
      const data = JSON.stringify({ payload: Buffer.from(payload, "hex").toString("base64"), delta });
      response.write(`event: payload\r\ndata: ${data}\n\n: a comment\n`);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    response.end("event: done\ndata: {}\n\n");
  };
}

const edge = await EdgeModel.open(BUNDLE, { variant: "fp32", threads: 1 });
after(async () => {
  await edge.close();
  for (const server of servers) server.closeAllConnections();
  for (const server of servers) server.close();
});

/** What a reader of events holds in the end, and the kinds of events. */
async function read(events: AsyncIterable<AnswerEvent>): Promise<{ ids: number[]; kinds: Set<string> }> {
  let ids: number[] = [];
  const kinds = new Set<string>();
  for await (const event of events) {
    kinds.add(event.type);
    if (event.type === "token") ids.push(event.id);
    if (event.type === "retract") ids = ids.slice(0, event.position);
  }
  return { ids, kinds };
}

const codec = (row: Fill) => ((hex(row.payload)[0] ?? 0) >> 3) & 7;
const compact = EDGE.fp32.find((row) => codec(row) === 2 && row.sources.includes("a")) as Fill;
const predictive = EDGE.fp32.find((row) => codec(row) === 3 && row.sources.includes("a")) as Fill;
const limits = { maxTokens: EDGE.max_tokens };

const WAITING = { ...limits, mode: "prefer_in_cloud" } as const;
const REFINED = { ...limits, mode: "prefer_on_device", threshold: 0 } as const;
const { prompt } = compact;

test("an answer waits for its payload", async () => {
  const seen: Record<string, unknown>[] = [];
  const url = await served(service([[compact.payload, false]], seen));
  const client = new ServiceClient(url, { fields: { fraction: 0.1 } });
  const answer = edge.ask(client, prompt, WAITING);
  const { ids, kinds } = await read(answer);
  assert.deepEqual(ids, compact.ids);
  assert.deepEqual([...kinds], ["payload", "token", "done"]);
  const { service: report } = await answer.stats;
  const payloadBytes = [compact.payload.length / 2];
  assert.deepEqual(report, { payloadBytes, fellBack: null, failure: null, doubtBefore: null });
  assert.deepEqual(seen, [{ prompt, contract: edge.info.contract, confidence: true, fraction: 0.1 }]);
});

test("a device that doubts its tokens asks, and the text is what the last payload would have given", async () => {
  const seen: Record<string, unknown>[] = [];
  const url = await served(service([[compact.payload, false]], seen));
  const answer = edge.ask(url, prompt, REFINED);
  const { ids, kinds } = await read(answer);
  assert.deepEqual(ids, compact.ids);
  assert.ok(kinds.has("payload") && kinds.has("done"));
  const { doubtBefore } = (await answer.stats).service ?? {};
  assert.ok(doubtBefore && doubtBefore > 0);
  const sure = edge.ask(url, prompt, { ...REFINED, threshold: 1 });
  await read(sure);
  assert.deepEqual((await sure.stats).service?.payloadBytes, []);
  assert.equal(seen.length, 1);
});

test("a turn asks by its mode, and sends the conversation as messages", async () => {
  const seen: Record<string, unknown>[] = [];
  const cloud = await served(service([[compact.payload, false]], seen));
  const session = new EdgeSession(edge);
  const turn = session.ask(prompt, { ...REFINED, cloud });
  assert.deepEqual((await read(turn)).ids, compact.ids);
  assert.deepEqual(
    turn.tokens.map(({ id }) => id),
    compact.ids,
  );
  assert.equal(turn.source, "mixed");
  const messages = [{ role: "user", content: prompt }];
  assert.deepEqual(seen, [{ messages, contract: edge.info.contract, confidence: true }]);
  assert.deepEqual(session.messages, [...messages, { role: "assistant", content: compact.text }]);
  for (const options of [{ mode: "only_on_device" }, { mode: "only_in_cloud", private: true }] as const) {
    const alone = new EdgeSession(edge);
    const { kinds } = await read(alone.ask(prompt, { ...limits, ...options, cloud }));
    assert.deepEqual([...kinds], ["token", "done"]);
    assert.equal(alone.private, "private" in options);
  }
  assert.equal(seen.length, 1);
  const wrong = { mode: "often" as "only_in_cloud" };
  await assert.rejects(read(edge.ask(cloud, prompt, wrong)), UsageError);
  await assert.rejects(read(edge.ask(cloud, prompt, { threshold: 2 })), UsageError);
  assert.throws(() => session.ask(prompt, { mode: "only_in_cloud" }), UsageError);
  assert.throws(() => session.ask(prompt, { cloud, payload: new Uint8Array(9) }), UsageError);
  const broken = [{ role: "user", content: 7 }] as unknown as ChatMessage[];
  await assert.rejects(read(edge.ask(cloud, broken)), UsageError);
});

test("a predictive payload is written while it is decoded", async () => {
  const url = await served(service([[predictive.payload, false]]));
  const client = new ServiceClient(url, { fields: { codec: "predictive" } });
  for (const options of [WAITING, REFINED]) {
    const { ids } = await read(edge.ask(client, predictive.prompt, options));
    assert.deepEqual(ids, predictive.ids, options.mode);
  }
});

test("a predictive payload of other predictions is replaced by a compact one", async () => {
  const broken = Buffer.from(predictive.payload, "hex");
  broken[broken.length - 1] = (broken.at(-1) ?? 0) ^ 0x55;
  const url = await served(async (request, response) => {
    const { codec } = (await json(request)) as { codec?: string };
    response.writeHead(200, { "Content-Type": "application/octet-stream" });
    response.end(codec === "compact" ? hex(compact.payload) : broken);
  });
  const answer = edge.ask(url, prompt, WAITING);
  const { ids, kinds } = await read(answer);
  assert.deepEqual(ids, compact.ids);
  assert.ok(kinds.has("compact"));
  assert.match((await answer.stats).service?.fellBack ?? "", /codec compact/);
});

test("where the service fails the device answers alone, unless told not to", async () => {
  const client = new ServiceClient("http://127.0.0.1:9", { attempts: 1, timeoutSeconds: 2 });
  for (const options of [WAITING, REFINED]) {
    const answer = edge.ask(client, prompt, options);
    const { ids, kinds } = await read(answer);
    assert.ok(ids.length > 0 && kinds.has("failure"));
    assert.match((await answer.stats).service?.failure ?? "", /cannot be reached/);
  }
  await assert.rejects(read(edge.ask(client, "x", { mode: "only_in_cloud" })), CloudUnavailableError);
});

test("refusals name themselves, and temporary failures are tried again", async () => {
  const error = { code: "contract", expected: "a contract", found: "another", remedy: "Use its bundle." };
  const refusing = await served((_, response) => {
    response.writeHead(422, { "Content-Type": "application/json" }).end(JSON.stringify({ error }));
  });
  await assert.rejects(new ServiceClient(refusing).fetch("x"), (found) => {
    assert.ok(found instanceof CloudRefusedError);
    assert.match(found.message, /contract: expected a contract, found another. Use its bundle/);
    return true;
  });
  let attempts = 0;
  const busy = await served((_, response) => {
    attempts++;
    response.writeHead(attempts < 3 ? 503 : 200, { "Content-Type": "application/octet-stream" }).end("abc");
  });
  assert.equal((await new ServiceClient(busy, { key: "k" }).fetch("x")).length, 3);
  assert.equal(attempts, 3);
});

test("a response of another form, of no end or without bounds is an error", async () => {
  const forms: RequestListener[] = [
    (_, response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>hello"),
    (_, response) =>
      response.writeHead(200, { "Content-Type": "text/event-stream" }).end("event: payload\ndata: {}\n\n"),
    (_, response) => response.writeHead(200, { "Content-Type": "text/event-stream" }).end("x".repeat(1 << 20)),
    (_, response) => response.writeHead(200, { "Content-Type": "text/event-stream" }).end("event: other\ndata: 1\n\n"),
    (_, response) => response.writeHead(302, { Location: "http://127.0.0.1:9/" }).end(),
  ];
  for (const form of forms) {
    const client = new ServiceClient(await served(form), { attempts: 1 });
    await assert.rejects(async () => {
      for await (const _ of client.stream("x"));
    }, CloudUnavailableError);
  }
  const endless = await served((_, response) => {
    response.writeHead(200, { "Content-Type": "application/octet-stream" });
    response.end(Buffer.alloc(1 << 20));
  });
  await assert.rejects(new ServiceClient(endless).fetch("x"), CloudUnavailableError);
  const silent = await served(() => {});
  await assert.rejects(new ServiceClient(silent, { timeoutSeconds: 0.3 }).fetch("x"), CloudUnavailableError);
  await assert.rejects(new ServiceClient(silent).fetch("x", {}, AbortSignal.timeout(100)), {
    name: "TimeoutError",
  });
});

test("an address is encrypted, or on this device", () => {
  for (const url of ["http://example.com", "ftp://localhost", "nonsense", "https://user@example.com"]) {
    assert.throws(() => new ServiceClient(url), UsageError, url);
  }
  for (const options of [{ key: "a b" }, { timeoutSeconds: 0 }, { attempts: 0 }]) {
    assert.throws(() => new ServiceClient("https://example.com", options), UsageError);
  }
});

class MapStore implements BundleStore {
  readonly map = new Map<string, Uint8Array>();
  get = async (key: string) => this.map.get(key);
  put = async (key: string, data: Uint8Array) => void this.map.set(key, Uint8Array.from(data));
  delete = async (key: string) => void this.map.delete(key);
}

/** A server of the bundle: breaks the first answer for the weights, and changes files on request. */
function files(options: { ranges: boolean; breaks?: number; changed?: string }, seen: string[]): RequestListener {
  let breaks = options.breaks ?? 0;
  return (request, response) => {
    const path = (request.url ?? "").replace("/bundle/", "");
    const start = Number(/\d+/.exec(request.headers.range ?? "")?.[0] ?? 0);
    seen.push(`${path} ${start}`);
    let data: Buffer;
    try {
      data = readFileSync(`${BUNDLE}${path}`);
    } catch {
      response.writeHead(404).end();
      return;
    }
    if (path === options.changed) data[5] = (data[5] ?? 0) ^ 1;
    const from = options.ranges ? start : 0;
    response.writeHead(
      from ? 206 : 200,
      from ? { "Content-Range": `bytes ${from}-${data.length - 1}/${data.length}` } : {},
    );
    if (path.endsWith(".data") && breaks-- > 0) {
      response.write(data.subarray(from, from + 1_300_000), () => setTimeout(() => response.destroy(), 50));
    } else {
      response.end(data.subarray(from));
    }
  };
}

test("a bundle is fetched once, in parts, over connections that break", async () => {
  for (const ranges of [true, false]) {
    const seen: string[] = [];
    const url = `${await served(files({ ranges, breaks: 1 }, seen))}/bundle/`;
    const store = new MapStore();
    const progress: number[] = [];
    const onProgress = ({ loaded, total }: { loaded: number; total: number }) => progress.push(loaded / total);
    const first = await EdgeModel.open(url, { variant: "fp32", threads: 1, store, onProgress });
    await first.close();
    assert.equal(progress.at(-1), 1);
    const weights = seen.filter((path) => path.includes(".data"));
    assert.equal(weights.length, 2);
    assert.ok(ranges === !weights[1]?.endsWith(" 0") || !ranges, `${weights}`);
    seen.length = 0;
    await (await EdgeModel.open(url, { variant: "fp32", threads: 1, store })).close();
    assert.deepEqual(seen, ["bundle.json 0"]);
    // Without a server, from the store alone; and with a part that was lost.
    servers.at(-1)?.closeAllConnections();
    servers.at(-1)?.close();
    const offline = await EdgeModel.open(url, { variant: "fp32", threads: 1, store });
    assert.equal(offline.info.variant, "fp32");
    await offline.close();
  }
});

test("a changed file is refused and not kept; a missing bundle says so", async () => {
  const store = new MapStore();
  const changed = `${await served(files({ ranges: true, changed: "fp32/model.onnx.data" }, []))}/bundle`;
  const options = { variant: "fp32", store, threads: 1 };
  await assert.rejects(EdgeModel.open(changed, options), { name: "BundleHashError" });
  const right = `${await served(files({ ranges: true }, []))}/bundle/bundle.json`;
  await (await EdgeModel.open(right, options)).close();
  const nothing = await served((_, response) => response.writeHead(404).end());
  await assert.rejects(EdgeModel.open(nothing, options), { name: "BundleMissingError" });
  const late = new AbortController();
  const slow = await served(() => setTimeout(() => late.abort(), 50));
  await assert.rejects(EdgeModel.open(slow, { ...options, signal: late.signal }), { name: "AbortError" });
});
