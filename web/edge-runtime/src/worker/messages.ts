/** Messages between a page and the worker in which its model runs, and errors on their way. */

import type { ClientOptions } from "../client/service-client.js";
import type { FillOptions } from "../decode/forced-decoder.js";
import type { AskOptions } from "../decode/online-answer.js";
import type { OpenOptions } from "../edge-model.js";
import { EdgeError, ERRORS } from "../errors.js";
import type { Prompt } from "../text/chat-template.js";

/** Options that can be sent; a signal is sent as `abort`. */
type Plain<T> = Omit<T, "signal" | "onProgress" | "store" | "ort">;

export type Call =
  | { readonly call: "open"; readonly source: string; readonly options: Plain<OpenOptions> }
  | { readonly call: "fill"; readonly payload: Uint8Array | null; readonly options: Plain<FillOptions> }
  | {
      readonly call: "ask";
      readonly service: string;
      readonly client: ClientOptions;
      readonly prompt: Prompt;
      readonly options: Plain<AskOptions>;
    }
  | { readonly call: "countTokens"; readonly prompt: Prompt }
  | { readonly call: "abort"; readonly reason: unknown };

/** A call with its number; those of `abort` are of the call that is to end. */
export type Request = Call & { readonly id: number };

/** What comes back to a call: items while it runs, then its result or its error. */
export type Reply =
  | { readonly id: number; readonly item: unknown }
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: PlainError };

interface PlainError {
  readonly name: string;
  readonly parts: readonly [string, string, string, string] | null;
  /** Of any other error: itself, where it can be sent. */
  readonly other: unknown;
}

export function toPlain(error: unknown): PlainError {
  if (error instanceof EdgeError) {
    const { name, where, expected, found, remedy } = error;
    return { name, parts: [where, expected, found, remedy], other: null };
  }
  const isPlain = error instanceof DOMException || !(error instanceof Error);
  return { name: "Error", parts: null, other: isPlain ? error : new Error(error.message) };
}

export function fromPlain({ name, parts, other }: PlainError): unknown {
  const found = ERRORS[name as keyof typeof ERRORS];
  return parts && found ? new found(...parts) : other;
}
