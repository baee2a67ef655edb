/**
 * Splits a payload into header, optional fields and body; verifies neither checksum nor contract.
 *
 * Byte 0: version (2 bits), codec (3), needs prompt, is a delta, has optional fields. Byte 1: tag. Bytes 2-3: check. A
 * delta continues with the reference to its base.
 */
import { type Bytes, toHex } from "../bytes.js";
import { CodecError, MalformedPayloadError, OversizedPayloadError, VersionError } from "../errors.js";
import { ByteReader } from "./byte-reader.js";
import { readExtras } from "./extras-reader.js";
import { CODECS, type Header, isBound, NO_EXTRAS } from "./header.js";

/** Maximum size of a payload in bytes; a download may stop here. */
export const MAX_PAYLOAD_BYTES = 1 << 19;

/** Bytes before the optional fields. */
export const HEADER_BYTES = 4;

const VERSION = 1;
const [NEEDS_PROMPT, DELTA, EXTRAS] = [4, 2, 1];
const UPDATE = "Update this software to read it";

export async function openPayload(data: Bytes): Promise<{ header: Header; body: Bytes }> {
  if (data.length > MAX_PAYLOAD_BYTES) {
    const remedy = "This is not a payload";
    throw new OversizedPayloadError("payload", `at most ${MAX_PAYLOAD_BYTES} bytes`, data.length, remedy);
  }
  const reader = new ByteReader(data);
  const head = reader.take(HEADER_BYTES, "header");
  const first = head[0] ?? 0;
  const byte0 = `in byte 0 (0x${first.toString(16).padStart(2, "0")})`;
  const version = first >> 6;
  if (version !== VERSION) {
    const remedy = `This is not a payload${version > VERSION ? `, or one of a later version. ${UPDATE}` : ""}`;
    throw new VersionError("payload", `byte 0 of version ${VERSION}`, byte0, remedy);
  }
  const number = (first >> 3) & 7;
  const codec = CODECS.get(number);
  if (codec === undefined) {
    const known = [...CODECS].map(([at, name]) => `${at} (${name})`).join(", ");
    throw new CodecError("codec", known, `${number} ${byte0}`, UPDATE);
  }
  if (isBound(codec) && !(first & NEEDS_PROMPT)) {
    throw new MalformedPayloadError("header", `codec ${codec} to need its prompt`, byte0);
  }
  if (codec === "template-gzip" && first & (NEEDS_PROMPT | DELTA)) {
    throw new MalformedPayloadError("header", `neither prompt nor base for codec ${codec}`, byte0);
  }
  const baseRef = first & DELTA ? toHex(reader.take(1, "reference to the base payload")) : null;
  const extras = first & EXTRAS ? await readExtras(reader) : NO_EXTRAS;
  const header: Header = {
    version,
    codec,
    tag: toHex(head.subarray(1, 2)),
    needsPrompt: Boolean(first & NEEDS_PROMPT),
    baseRef,
    extras,
    size: data.length,
    bodyBytes: reader.left,
  };
  return { header, body: reader.rest() };
}

/** Header and optional fields of a payload; its anchors and its check are not read. */
export async function peek(data: Uint8Array): Promise<Header> {
  return (await openPayload(Uint8Array.from(data))).header;
}
