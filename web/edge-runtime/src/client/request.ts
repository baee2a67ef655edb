/** What every request shares: addresses that are allowed, pauses between attempts, the reason of a failure. */
import { CloudUnavailableError, UsageError } from "../errors.js";

/** Statuses of temporary failures. */
export const TEMPORARY: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504]);

const BACKOFF_MS = 250;
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i;

/** Throws UsageError unless an address is encrypted, on this very device, or where the page itself came from. */
export function allowed(url: URL): void {
  const own = globalThis.location?.origin;
  if (url.protocol === "https:" || (own !== undefined && own !== "null" && url.origin === own)) return;
  if (url.protocol === "http:" && LOOPBACK.test(url.hostname)) return;
  const remedy = "Plain http is for this device and for the server of the page only: others could read and change it";
  throw new UsageError("url", "https://host or https://host:port", url.href.slice(0, 100), remedy);
}

/** Milliseconds to wait after so many failures. */
export function backoff(failures: number): number {
  return BACKOFF_MS * 2 ** (failures - 1) * (0.5 + Math.random() / 2);
}

/** Waits; throws the signal's reason where it is aborted meanwhile. */
export async function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
  });
  signal?.throwIfAborted();
}

/** The cause of a failed exchange in a few words. */
export function failure(error: unknown): string {
  if (error instanceof CloudUnavailableError) return error.found;
  if (!(error instanceof Error)) return String(error);
  if (error.name === "TimeoutError") return "that it did not answer in time";
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `that it cannot be reached (${error.message}${cause})`;
}
