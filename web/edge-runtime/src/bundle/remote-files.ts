/**
 * A bundle at an address, as a static server serves it. Files are fetched in ranges and kept in a store part by part: what
 * is stored is never requested again, so a download that ends early goes on where it stood.
 *
 * Parts are kept by their file's SHA-256, so equal files of several bundles are fetched once. A visit without a network
 * finds the manifest of the last one.
 */
import { type Bytes, concat } from "../bytes.js";
import { allowed, backoff, failure, pause, TEMPORARY } from "../client/request.js";
import { BundleMissingError, CloudRefusedError, CloudUnavailableError } from "../errors.js";
import { type BundleFiles, type ReadOptions, verify } from "./files.js";
import { type FileRecord, MANIFEST, MAX_MANIFEST_BYTES } from "./manifest.js";
import type { BundleStore } from "./store.js";

/** Bytes that are stored at once: at most so many are fetched a second time. */
export const PART_BYTES = 1 << 20;

/** Failures in a row, without a byte between them, after which a download ends. */
const ATTEMPTS = 5;

export class RemoteFiles implements BundleFiles {
  private readonly _base: URL;

  constructor(
    url: URL,
    private readonly _store: BundleStore | null,
    private readonly _key: string | undefined,
    private readonly _partBytes = PART_BYTES,
  ) {
    this._base = new URL(url);
    this._base.pathname = `${url.pathname.replace(new RegExp(`${MANIFEST.replace(".", "\\.")}$`), "").replace(/\/+$/, "")}/`;
    allowed(this._base);
  }

  get where(): string {
    return this._base.href;
  }

  async manifest({ signal }: ReadOptions): Promise<Bytes> {
    const key = `manifest ${this._base.href}`;
    const parts: Uint8Array[] = [];
    let size = 0;
    try {
      await this._request(MANIFEST, 0, signal, (data, start) => {
        if (start === 0) {
          parts.length = 0;
          size = 0;
        }
        parts.push(data);
        size += data.length;
        return size <= MAX_MANIFEST_BYTES;
      });
    } catch (error) {
      const kept = error instanceof CloudUnavailableError ? await this._store?.get(key) : undefined;
      if (kept) return Uint8Array.from(kept);
      if (error instanceof CloudRefusedError) {
        throw new BundleMissingError(this.where, "a model bundle", error.found, error.remedy);
      }
      throw error;
    }
    const found = concat(...parts);
    await this._store?.put(key, found);
    return found;
  }

  async read(path: string, record: FileRecord, { signal, onBytes }: ReadOptions): Promise<Bytes> {
    const key = (part: number) => `${record.sha256} ${part * this._partBytes}`;
    const parts = Math.ceil(record.size / this._partBytes);
    const data = new Uint8Array(record.size);
    let stored = 0;
    for (; stored < parts; stored++) {
      signal?.throwIfAborted();
      const part = await this._store?.get(key(stored));
      const start = stored * this._partBytes;
      if (part?.length !== Math.min(this._partBytes, record.size - start)) break;
      data.set(part, start);
      onBytes?.(start + part.length);
    }
    let at = Math.min(stored * this._partBytes, record.size);
    const keep = async () => {
      for (; stored < parts; stored++) {
        const end = Math.min((stored + 1) * this._partBytes, record.size);
        if (at < end) return;
        await this._store?.put(key(stored), data.subarray(stored * this._partBytes, end));
      }
    };
    while (at < record.size) {
      await this._request(path, at, signal, async (chunk, start) => {
        at = start;
        const fits = chunk.subarray(0, record.size - at);
        data.set(fits, at);
        at += fits.length;
        onBytes?.(at);
        await keep();
        return at < record.size;
      });
    }
    try {
      await verify(`${this.where}${path}`, data, record);
    } catch (error) {
      for (let part = 0; part < parts; part++) await this._store?.delete(key(part));
      throw error;
    }
    return data;
  }

  /**
   * Passes a file's bytes to `take`, with the offset of each chunk, until it returns false or the file ends; goes on after
   * a broken connection. The first offset is `start`, or 0 where the server serves no ranges.
   */
  private async _request(
    path: string,
    start: number,
    signal: AbortSignal | undefined,
    take: (chunk: Uint8Array, start: number) => boolean | Promise<boolean>,
  ): Promise<void> {
    const url = new URL(`./${path.split("/").map(encodeURIComponent).join("/")}`, this._base);
    let at = start;
    for (let failures = 1; ; failures++) {
      let reason: string;
      let wait = 0;
      try {
        const headers = {
          ...(at > 0 && { Range: `bytes=${at}-` }),
          ...(this._key !== undefined && { Authorization: `Bearer ${this._key}` }),
        };
        const response = await fetch(url, { headers, cache: "no-cache", ...(signal && { signal }) });
        if (response.ok) {
          const range = /^bytes (\d+)-/.exec(response.headers.get("Content-Range") ?? "");
          if (response.status === 206 && Number(range?.[1]) !== at) {
            throw new CloudRefusedError(`${url}`, `bytes from ${at} on`, response.headers.get("Content-Range"));
          }
          if (response.status !== 206) at = 0;
          const reader = response.body?.getReader();
          while (reader) {
            const { done, value } = await reader.read();
            if (done) break;
            failures = 1;
            const more = await take(value, at);
            at += value.length;
            if (!more) {
              await reader.cancel();
              return;
            }
          }
          if (path === MANIFEST) return;
          throw new TypeError("it ended before the file did");
        }
        await response.body?.cancel();
        if (!TEMPORARY.has(response.status)) {
          const remedy = "Check the address, and that it serves the bundle's folder";
          throw new CloudRefusedError(`${url}`, "the file", `status ${response.status}`, remedy);
        }
        wait = 1000 * Math.min(60, Number(response.headers.get("Retry-After")) || 0);
        reason = `status ${response.status}`;
      } catch (error) {
        if (error instanceof CloudRefusedError) throw error;
        signal?.throwIfAborted();
        reason = failure(error);
      }
      if (failures >= ATTEMPTS) {
        throw new CloudUnavailableError(`${url}`, "the file", `${reason} (${failures} attempts)`);
      }
      await pause(Math.max(wait, backoff(failures)), signal);
    }
  }
}
