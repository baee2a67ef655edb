/** The check of a payload: a CRC of its bytes, XOR 16 bits of a hash over everything that it depends on. */
import { type Bytes, fromHex, int32Bytes, sha256 } from "../bytes.js";
import type { Contract } from "../contract.js";
import { AnchorRangeError, ChecksumError } from "../errors.js";
import type { Codec } from "./header.js";
import { HEADER_BYTES } from "./opened-payload.js";
import type { Base } from "./shared.js";

/** What a check binds beside the payload's own bytes. */
export interface Bound {
  readonly codec: Codec;
  readonly contract: Contract;
  readonly promptIds: readonly number[] | null;
  readonly base: Base | null;
  /** SHA-256 of the model file, for codecs compact and portable. */
  readonly model?: Uint8Array;
  /** The fingerprint of the model that the codec is bound to and, of predictive, the digest of the decoded text. */
  readonly text?: Uint8Array | undefined;
}

/** Throws ChecksumError where the check of a payload does not match. */
export function verifyChecksum(data: Bytes, bound: Bound): void {
  const [found, expected] = [statedCheck(data), expectedCheck(data, bound)];
  if (found === expected) return;
  const remedy =
    bound.promptIds === null
      ? `The bytes were changed on their way, or made for another contract than ${bound.contract}; fetch it again`
      : `The bytes were changed on their way, or it was made with another prompt than the ${bound.promptIds.length} ` +
        `ids given, or for another contract than ${bound.contract}; give exactly the prompt it was made with`;
  const where = `${hexCheck(found)} in bytes 2-3 of ${data.length}`;
  throw new ChecksumError("checksum", hexCheck(expected), where, remedy);
}

/** The check that a payload states. */
export function statedCheck(data: Bytes): number {
  return uint16(data, 2);
}

/** The check that a payload with these bytes should have. */
export function expectedCheck(data: Bytes, bound: Bound): number {
  return crc(data) ^ binding(bound);
}

/** A check as 4 hex digits. */
export function hexCheck(check: number): string {
  return check.toString(16).padStart(4, "0");
}

const CRC_TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = (crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0);
  return crc;
});

/** CRC-16 (polynomial 0x1021, initial value 0xFFFF) of all bytes except the check itself. */
export function crc(data: Bytes): number {
  let crc = 0xffff;
  for (let at = 0; at < data.length; at++) {
    if (at >= 2 && at < HEADER_BYTES) continue;
    crc = ((crc << 8) & 0xffff) ^ (CRC_TABLE[(crc >> 8) ^ (data[at] ?? 0)] ?? 0);
  }
  return crc;
}

function binding({ codec, contract, promptIds, base, model, text }: Bound): number {
  const parts: Uint8Array[] = [fromHex(contract.identity)];
  const add = (letter: string, data: Uint8Array) => parts.push(Uint8Array.of(letter.charCodeAt(0)), data);
  if (codec !== "predictive" && model) parts.push(model);
  if (promptIds !== null) {
    if (promptIds.some((id) => id < 0)) throw new AnchorRangeError("prompt", "ids of 0 and more", "others");
    add("P", int32Bytes(promptIds));
  }
  if (base !== null) add("B", sha256(base.data));
  if (text !== undefined) add("W", text);
  return uint16(sha256(...parts), 0);
}

export function uint16(data: Bytes, at: number): number {
  return ((data[at] ?? 0) << 8) | (data[at + 1] ?? 0);
}
