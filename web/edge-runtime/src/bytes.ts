/** Small operations on bytes: hexadecimal, UTF-8, SHA-256. */
import { Sha256 } from "./sha256.js";

export type Bytes = Uint8Array<ArrayBuffer>;

/** SHA-256 of the concatenated parts: 32 bytes. Synchronous, and also where the page is no secure context. */
export function sha256(...parts: Uint8Array[]): Bytes {
  const hash = new Sha256();
  for (const part of parts) hash.update(part);
  return hash.digest();
}

export function toHex(data: Uint8Array): string {
  let text = "";
  for (const byte of data) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** The bytes of a string of hexadecimal digits, of even length. */
export function fromHex(text: string): Bytes {
  return Uint8Array.from({ length: text.length / 2 }, (_, at) => parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

export function concat(...parts: Uint8Array[]): Bytes {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Where a sequence of bytes stands in others. */
export function* occurrences(data: Bytes, part: Bytes): Generator<number> {
  const first = part[0] ?? 0;
  for (let at = data.indexOf(first); at >= 0; at = data.indexOf(first, at + 1)) {
    if (part.every((byte, index) => data[at + index] === byte)) yield at;
  }
}

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes UTF-8; null where it is invalid. */
export function strictUtf8(data: Uint8Array): string | null {
  try {
    return STRICT.decode(data);
  } catch {
    return null;
  }
}

/** Signed 32-bit integers as little-endian bytes. */
export function int32Bytes(numbers: ArrayLike<number>): Bytes {
  const view = new DataView(new ArrayBuffer(4 * numbers.length));
  for (let at = 0; at < numbers.length; at++) view.setInt32(4 * at, numbers[at] ?? 0, true);
  return new Uint8Array(view.buffer);
}

/** JSON with every character beyond ASCII escaped, as Python's `json.dumps` writes it. */
export function asciiJson(text: string): string {
  return JSON.stringify(text).replace(/[\x7f-\uffff]/g, (letter) =>
    letter === "\x7f" ? letter : `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
