/** Payloads of one request, received while the device decodes. One reader takes them. */
import type { ReceivedPayload } from "./service-client.js";

export class PayloadFeed {
  private readonly _waiting: ReceivedPayload[] = [];
  private readonly _leaving = new AbortController();
  private _ended = false;
  private _error: unknown;
  private _wake = () => {};

  /**
   * @param signal of the answer.
   * @param receive the payloads; ends with the signal that it is given.
   */
  constructor(signal: AbortSignal | undefined, receive: (signal: AbortSignal) => AsyncIterable<ReceivedPayload>) {
    const both = signal ? AbortSignal.any([signal, this._leaving.signal]) : this._leaving.signal;
    const take = async () => {
      for await (const payload of receive(both)) {
        this._waiting.push(payload);
        this._wake();
      }
    };
    take()
      .catch((error: unknown) => {
        this._error = error;
      })
      .finally(() => {
        this._ended = true;
        this._wake();
      });
  }

  /** True where `next` would return at once with a payload or an error. */
  get isReady(): boolean {
    return this._waiting.length > 0 || this._error !== undefined;
  }

  /** The next payload in order of arrival; null after the last one. Throws what ended the request, after the last one. */
  async next(): Promise<ReceivedPayload | null> {
    while (this._waiting.length === 0 && !this._ended) await new Promise<void>((resolve) => (this._wake = resolve));
    const payload = this._waiting.shift();
    if (payload) return payload;
    if (this._error !== undefined) throw this._error;
    return null;
  }

  /** Leaves the request: nothing more is taken. */
  close(): void {
    this._leaving.abort();
  }
}
