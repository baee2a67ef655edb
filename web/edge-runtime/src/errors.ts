/**
 * Every error of this library. Names are those of the Python runtime.
 *
 * Each states what was expected, what was found, where, and the remedy: it may be shown to a user.
 */

/** Base class of all errors of this library, except for the `AbortError` of a signal. */
export abstract class EdgeError extends Error {
  /** What would have been right. */
  readonly expected: string;
  /** What was there in its place. */
  readonly found: string;
  /** What to do about it; empty where nothing is known to help. */
  readonly remedy: string;

  /** @param where it was found: a field, a file, an address. */
  constructor(
    readonly where: string,
    expected: string,
    found: unknown,
    remedy = "",
    options?: ErrorOptions,
  ) {
    const what = shown(found);
    super(`${where}: expected ${expected}, found ${what}${remedy ? `. ${remedy}` : ""}`, options);
    this.expected = expected;
    this.found = what;
    this.remedy = remedy;
  }
}

/** At most 200 characters of anything, without control characters: what was found may be hostile. */
export function shown(found: unknown): string {
  let text: string;
  try {
    text = typeof found === "object" && !(found instanceof Error) ? JSON.stringify(found) : String(found);
  } catch {
    text = "one nested too far";
  }
  return [...text.slice(0, 200)].map((letter) => (letter < " " || letter === "\x7f" ? " " : letter)).join("");
}

/** An invalid argument: an option, a missing prompt, an answer too long. */
export class UsageError extends EdgeError {}

/** Prompt, anchors or requested tokens exceed the model's context. */
export class ContextError extends UsageError {}

/** The model could not be loaded or run. */
export class EngineError extends EdgeError {}

/** The service or a server of files cannot be reached, or does not answer in time. */
export class CloudUnavailableError extends EdgeError {}

/** The service refuses the request: a wrong key, another contract, a prompt too long. */
export class CloudRefusedError extends EdgeError {}

/** The bytes are no session. */
export class SessionFileError extends EdgeError {}

/** A model bundle cannot be used. */
export abstract class BundleError extends EdgeError {}

/** There is no bundle at the address. */
export class BundleMissingError extends BundleError {}

/** A file that the bundle lists is missing, unreadable or of the wrong size. */
export class BundleFileError extends BundleError {}

/** A file does not match its stated SHA-256. */
export class BundleHashError extends BundleError {}

/** `bundle.json`, the tokenizer or the chat template is invalid or of an unsupported form. */
export class BundleSchemaError extends BundleError {}

/** The bundle has no such variant. */
export class BundleVariantError extends BundleError {}

/** A payload, or the anchors in it, cannot be used. */
export abstract class PayloadError extends EdgeError {}

/** The bytes end before the end of the payload. */
export class TruncatedPayloadError extends PayloadError {}

/** The payload, or its stated decompressed size, exceeds the limit. */
export class OversizedPayloadError extends PayloadError {}

/** The bytes were changed on their way. */
export class ChecksumError extends PayloadError {}

/** The payload has a version of the format that this library does not support. */
export class VersionError extends PayloadError {}

/** The payload has a codec that this library does not support: request codec compact. */
export class CodecError extends PayloadError {}

/** The content violates the format. */
export class MalformedPayloadError extends PayloadError {}

/** The payload was made for another vocabulary, special ids or chat template. */
export class ContractMismatchError extends PayloadError {}

/** A position is outside the canvas, an id outside the vocabulary, or confidences do not match the anchors. */
export class AnchorRangeError extends PayloadError {}

/** The payload needs its prompt, which it does not carry and which was not passed. */
export class PromptRequiredError extends PayloadError {}

/** The payload is a delta, and its base was not passed or does not match. */
export class BasePayloadError extends PayloadError {}

/**
 * The payload was coded against a model's predictions, and this device has no model, another one, or decoded another
 * text with it. A payload of codec compact for the same anchors can be decoded instead.
 */
export class FingerprintError extends PayloadError {}

/** The codec needs the tokenizer, and none was passed. */
export class TokenizerRequiredError extends PayloadError {}

/** Classes by their names, which are in this list as a minifier changes `constructor.name`. */
export const ERRORS = {
  UsageError,
  ContextError,
  EngineError,
  CloudUnavailableError,
  CloudRefusedError,
  SessionFileError,
  BundleMissingError,
  BundleFileError,
  BundleHashError,
  BundleSchemaError,
  BundleVariantError,
  TruncatedPayloadError,
  OversizedPayloadError,
  ChecksumError,
  VersionError,
  CodecError,
  MalformedPayloadError,
  ContractMismatchError,
  AnchorRangeError,
  PromptRequiredError,
  BasePayloadError,
  FingerprintError,
  TokenizerRequiredError,
};
for (const [name, each] of Object.entries(ERRORS)) each.prototype.name = name;
