/**
 * Client of an anchor service: `POST /v1/anchors` and `/v1/anchors/stream`.
 *
 * The connection is encrypted, unless the service is on this very device or is where the page came from; redirects are not
 * followed. Sizes and times of responses are bounded, and a response of another form is an error. Throws CloudRefusedError
 * where the service refuses the request, CloudUnavailableError where it cannot be reached or does not answer in time.
 */
import { type Bytes, concat } from "../bytes.js";
import { CloudRefusedError, CloudUnavailableError, shown, UsageError } from "../errors.js";
import { MAX_PAYLOAD_BYTES } from "../payload/opened-payload.js";
import type { Prompt } from "../text/chat-template.js";
import { readEvents } from "./event-reader.js";
import { allowed, backoff, failure, pause, TEMPORARY } from "./request.js";

const MAX_TEXT_BYTES = 1 << 16;
const MAX_EVENTS = 64;

/** Bytes of one payload; `delta` where it adds to the payload before it. */
export interface ReceivedPayload {
  readonly data: Bytes;
  readonly delta: boolean;
}

/** Fields of a request beside the prompt, by their names in the protocol: fraction, codec, contract, max_bytes... */
export type Fields = Readonly<Record<string, unknown>>;

export interface ClientOptions {
  /** Sent as `Authorization: Bearer`. */
  readonly key?: string | undefined;
  /** From the first attempt to the last byte; 15 by default. */
  readonly timeoutSeconds?: number | undefined;
  /** Maximum number of attempts of one request; 4 by default. */
  readonly attempts?: number | undefined;
  /** Of the requests of an answer; by default they ask how sure the diffusion model is of each anchor. */
  readonly fields?: Fields | undefined;
}

export class ServiceClient {
  readonly url: URL;
  private readonly _key: string | undefined;
  private readonly _timeoutSeconds: number;
  private readonly _attempts: number;

  /** @param url `https://host` or `https://host:port`, with the path before /v1 where there is one. */
  constructor(
    url: string | URL,
    readonly options: ClientOptions = {},
  ) {
    const { key, timeoutSeconds = 15, attempts = 4 } = options;
    const base = globalThis.location?.href;
    if (!URL.canParse(`${url}`, base)) throw new UsageError("url", "https://host or https://host:port", `${url}`);
    this.url = new URL(`${url}`, base);
    allowed(this.url);
    if (this.url.username || this.url.search || this.url.hash) {
      throw new UsageError("url", "no user name, query or fragment", this.url.href.slice(0, 100));
    }
    if (key !== undefined && !/^[!-~]+$/.test(key)) {
      throw new UsageError("key", "printable ASCII characters without spaces", "others");
    }
    if (!(timeoutSeconds > 0 && timeoutSeconds <= 3600)) {
      throw new UsageError("timeoutSeconds", "above 0 and at most 3600", timeoutSeconds);
    }
    if (!(attempts >= 1)) throw new UsageError("attempts", "1 or more", attempts);
    this._key = key;
    this._timeoutSeconds = timeoutSeconds;
    this._attempts = attempts;
  }

  /** Payloads for an answer, with the client's own fields and further ones: one, or as the service makes them. */
  async *payloads(
    prompt: Prompt,
    stream: boolean,
    fields: Fields,
    signal?: AbortSignal,
  ): AsyncGenerator<ReceivedPayload> {
    const { fraction, ...rest } = { confidence: true, ...this.options.fields, ...fields } as Fields;
    if (!stream) yield { data: await this.fetch(prompt, { ...rest, fraction }, signal), delta: false };
    else yield* this.stream(prompt, { ...rest, fractions: fraction === undefined ? fraction : [fraction] }, signal);
  }

  /** The bytes of one payload. */
  async fetch(prompt: Prompt, fields: Fields = {}, signal?: AbortSignal): Promise<Bytes> {
    return this._send("/v1/anchors", body(prompt, fields), "application/octet-stream", signal, (it) =>
      readAtMost(it, MAX_PAYLOAD_BYTES),
    );
  }

  /** Payloads as the service makes them. A stream that breaks is not started again: those so far stay valid. */
  async *stream(prompt: Prompt, fields: Fields = {}, signal?: AbortSignal): AsyncGenerator<ReceivedPayload> {
    const response = await this._send(
      "/v1/anchors/stream",
      body(prompt, fields),
      "text/event-stream",
      signal,
      async (it) => it,
    );
    if (!response.body) throw this._unavailable("a stream", "none");
    let count = 0;
    try {
      for await (const { name, data } of readEvents(response.body)) {
        if (name === "done") return;
        const fields = jsonObject(data);
        if (name === "error") throw this._unavailable("payloads", serviceError(fields) ?? "an error");
        const payload = name === "payload" && count++ < MAX_EVENTS ? base64(fields?.payload) : null;
        if (!payload || typeof fields?.delta !== "boolean") throw this._unavailable("payloads", "another stream");
        yield { data: payload, delta: fields.delta };
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof CloudUnavailableError) throw error;
      throw this._unavailable("payloads", failure(error));
    }
    throw this._unavailable("a stream that is done", "one that ended before");
  }

  /** What `read` makes of a response with status 200; the request is sent again where that may help. */
  private async _send<T>(
    path: string,
    fields: object,
    accept: string,
    signal: AbortSignal | undefined,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const timeout = AbortSignal.timeout(this._timeoutSeconds * 1000);
    const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const end = performance.now() + this._timeoutSeconds * 1000;
    const headers = {
      Accept: accept,
      "Content-Type": "application/json",
      ...(this._key !== undefined && { Authorization: `Bearer ${this._key}` }),
    };
    const address = `${this.url.href.replace(/\/+$/, "")}${path}`;
    const init = { method: "POST", headers, body: JSON.stringify(fields), signal: limit } as const;
    for (let attempt = 1; ; attempt++) {
      let wait = backoff(attempt);
      let reason: string;
      try {
        const response = await fetch(address, { ...init, redirect: "error", cache: "no-store" });
        if (response.status === 200) {
          const type = response.headers.get("Content-Type")?.split(";")[0]?.trim().toLowerCase();
          if (type !== accept) {
            throw this._unavailable(`the service's ${accept}`, `${type}: something else answers there`);
          }
          return await read(response);
        }
        const text = await readAtMost(response, MAX_TEXT_BYTES).then(
          (data) => serviceError(jsonObject(new TextDecoder().decode(data))),
          () => null,
        );
        reason = `status ${response.status}${text ? `: ${text}` : ""}`;
        if (!TEMPORARY.has(response.status)) {
          const remedy = response.status === 401 ? "Give a key that the service knows" : "";
          throw new CloudRefusedError(this.url.href, "a payload", reason, remedy);
        }
        // Jitter: clients that were turned away together should not come back together.
        const seconds = Number(response.headers.get("Retry-After")) || 0;
        wait = Math.max(wait, seconds * 1000 * (1 + Math.random() / 4));
      } catch (error) {
        if (error instanceof CloudRefusedError || error instanceof CloudUnavailableError) throw error;
        signal?.throwIfAborted();
        reason = failure(error);
      }
      if (attempt >= this._attempts || performance.now() + wait >= end) {
        throw this._unavailable("a payload", `${reason} (${attempt} ${attempt === 1 ? "attempt" : "attempts"})`);
      }
      await pause(wait, signal);
    }
  }

  private _unavailable(expected: string, found: string): CloudUnavailableError {
    return new CloudUnavailableError(this.url.href, expected, found);
  }
}

function body(prompt: Prompt, fields: Fields): object {
  return { ...(typeof prompt === "string" ? { prompt } : { messages: prompt }), ...fields };
}

/** The whole body; throws for more bytes. */
async function readAtMost(response: Response, most: number): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new CloudUnavailableError(response.url, `an answer of at most ${most} bytes`, "more");
    }
  }
  return concat(...parts);
}

function jsonObject(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** Text of {"error": {"code", "expected", "found", "remedy"}} or its inner object; null for another form. */
function serviceError(data: Readonly<Record<string, unknown>> | null): string | null {
  const error = (data && "error" in data ? data.error : data) as Readonly<Record<string, unknown>> | null;
  if (typeof error !== "object" || error === null || error.expected === undefined) return null;
  const { code = "refused", expected, found, remedy } = error;
  return shown(`${code}: expected ${expected}, found ${found}${remedy ? `. ${remedy}` : ""}`);
}

function base64(text: unknown): Bytes | null {
  if (typeof text !== "string" || text.length > 2 * MAX_PAYLOAD_BYTES) return null;
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}
