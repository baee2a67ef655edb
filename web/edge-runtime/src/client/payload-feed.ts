/** Payloads of one request, received while the device decodes. One reader takes them. */
import type { ReceivedPayload } from "./service-client.js";

export class PayloadFeed {
  private readonly waiting: ReceivedPayload[] = [];
  private readonly leaving = new AbortController();
  private ended = false;
  private error: unknown;
  private wake = () => {};

  /**
   * @param signal of the answer.
   * @param receive gives each payload to `put`; ends with the signal that it is given.
   */
  constructor(
    signal: AbortSignal | undefined,
    receive: (put: (payload: ReceivedPayload) => void, signal: AbortSignal) => Promise<void>,
  ) {
    const both = signal ? AbortSignal.any([signal, this.leaving.signal]) : this.leaving.signal;
    const put = (payload: ReceivedPayload) => {
      this.waiting.push(payload);
      this.wake();
    };
    receive(put, both)
      .catch((error: unknown) => {
        this.error = error;
      })
      .finally(() => {
        this.ended = true;
        this.wake();
      });
  }

  /** True where `next` would return at once with a payload or an error. */
  get isReady(): boolean {
    return this.waiting.length > 0 || this.error !== undefined;
  }

  /** The next payload in order of arrival; null after the last one. Throws what ended the request, after the last one. */
  async next(): Promise<ReceivedPayload | null> {
    while (this.waiting.length === 0 && !this.ended) await new Promise<void>((resolve) => (this.wake = resolve));
    const payload = this.waiting.shift();
    if (payload) return payload;
    if (this.error !== undefined) throw this.error;
    return null;
  }

  /** Leaves the request: nothing more is taken. */
  close(): void {
    this.leaving.abort();
  }
}
