/** Codec template-gzip (paper section 6.3): the anchors as compressed text, with one NUL byte per gap position. */
import { MAX_CANVAS } from "../../anchor-set.js";
import { type Bytes, strictUtf8 } from "../../bytes.js";
import { AnchorRangeError, MalformedPayloadError } from "../../errors.js";
import { ByteReader } from "../byte-reader.js";
import type { TokenBytes } from "../shared.js";
import { gunzip } from "./compression.js";
import type { DecodedBody } from "./decoded-body.js";

/** Maximum size of a decompressed template, in bytes. */
const MAX_BYTES = 1 << 15;

/** Decodes a body. */
export async function decodeTemplate(body: Bytes, tokens: TokenBytes): Promise<DecodedBody> {
  const reader = new ByteReader(body);
  const canvas = reader.varint("canvas", MAX_CANVAS);
  const length = reader.varint("length", MAX_CANVAS + 1);
  const anchors = new Map<number, number>();
  let patch = -1;
  for (let left = reader.varint("number of patches", MAX_CANVAS); left > 0; left--) {
    patch += 1 + reader.varint("patch distance", MAX_CANVAS);
    anchors.set(patch, reader.varint("patch id", 2 ** 31 - 1));
  }
  const text = await gunzip(reader.rest(), MAX_BYTES, "template");
  let position = 0;
  for (let start = 0; start <= text.length; ) {
    const nul = text.indexOf(0, start);
    const end = nul < 0 ? text.length : nul;
    for (const id of end > start ? tokens.encode(utf8(text.subarray(start, end))) : []) {
      if (position >= canvas) throw new AnchorRangeError("template", `at most ${canvas} positions`, "more");
      if (anchors.has(position))
        throw new MalformedPayloadError(`patch at position ${position}`, "a gap there", "text");
      anchors.set(position++, id);
    }
    if (end < text.length) position++;
    start = end + 1;
  }
  let last = -1;
  for (const each of anchors.keys()) last = Math.max(last, each);
  if (last + 1 !== position) throw new MalformedPayloadError("template", "its end at the last anchor", "it elsewhere");
  return { anchors, canvas, length: length > 0 ? length - 1 : null };
}

function utf8(segment: Uint8Array): string {
  const text = strictUtf8(segment);
  if (text === null) throw new MalformedPayloadError("template", "UTF-8", "other bytes");
  return text;
}
