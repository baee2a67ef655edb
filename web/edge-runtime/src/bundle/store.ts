/** BundleStore: keeps the parts of a bundle between visits. */
import type { Bytes } from "../bytes.js";

/** A store of bytes by key. It may lose entries, as browsers do under pressure: they are fetched again. */
export interface BundleStore {
  get(key: string): Promise<Uint8Array | undefined>;
  put(key: string, data: Uint8Array): Promise<void>;
  delete(key: string): Promise<void>;
}

/** A store in the Cache API of browsers, shared by a page, its workers and its next visit. */
export class CacheStore implements BundleStore {
  private readonly _cache: Promise<Cache>;

  /** @param name of the cache; delete it with `caches.delete(name)`. */
  constructor(name = "inversespec-bundles") {
    this._cache = caches.open(name);
  }

  async get(key: string): Promise<Bytes | undefined> {
    const response = await (await this._cache).match(address(key));
    return response && new Uint8Array(await response.arrayBuffer());
  }

  async put(key: string, data: Uint8Array): Promise<void> {
    await (await this._cache).put(address(key), new Response(Uint8Array.from(data)));
  }

  async delete(key: string): Promise<void> {
    await (await this._cache).delete(address(key));
  }
}

/** Keys of the Cache API are addresses; nothing is ever requested from this one. */
function address(key: string): string {
  return `https://bundle.invalid/${encodeURIComponent(key)}`;
}

/** The Cache API where the page may use it: over HTTPS or on this very device. */
export function defaultStore(): BundleStore | null {
  return "caches" in globalThis ? new CacheStore() : null;
}
