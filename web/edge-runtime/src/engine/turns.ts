/** A place that one at a time holds, in the order in which it is asked for. */
import { UsageError } from "../errors.js";
import { breathe } from "../platform/breathe.js";

export class Turns {
  private _last: Promise<unknown> = Promise.resolve();
  private _closed = false;

  /** Throws UsageError after `close`. */
  check(): void {
    if (this._closed) throw new UsageError("model", "an open one", "one that was closed", "Open it again");
  }

  /** Runs `body` when its turn comes; rejects after `close`, and at once where the signal ends before. */
  async run<T>(signal: AbortSignal | undefined, body: () => Promise<T>): Promise<T> {
    const before = this._last;
    let [done, leave] = [() => {}, () => {}];
    this._last = new Promise<void>((resolve) => (done = resolve));
    try {
      await new Promise((resolve, reject) => {
        leave = () => reject(signal?.reason);
        signal?.addEventListener("abort", leave);
        before.then(resolve);
      });
      await breathe();
      signal?.throwIfAborted();
      this.check();
      return await body();
    } finally {
      signal?.removeEventListener("abort", leave);
      before.then(done);
    }
  }

  /** Refuses all that wait and all that come; settles after what is running. */
  async close(): Promise<void> {
    this._closed = true;
    await this._last;
  }
}
