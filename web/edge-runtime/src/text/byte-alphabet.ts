/** The byte-to-character mapping of byte-level BPE: printable Latin-1 maps to itself, the others from U+0100 on. */
import type { Bytes } from "../bytes.js";

const isPrintable = (byte: number) =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);

/** The character of each byte. */
export const CHARACTERS: readonly string[] = (() => {
  let other = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : other++));
})();

const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

/** The bytes of a vocabulary entry; null where a character maps to no byte. */
export function bytesOf(token: string): Bytes | null {
  const result = new Uint8Array(token.length);
  for (let at = 0; at < token.length; at++) {
    const byte = BYTES.get(token.charAt(at));
    if (byte === undefined) return null;
    result[at] = byte;
  }
  return result;
}
