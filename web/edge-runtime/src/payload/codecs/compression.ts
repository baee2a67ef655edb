/** Bounded gzip and zstd decompression: output never exceeds the size that the caller allows. */
import { Inflate } from "fflate";
import type { Bytes } from "../../bytes.js";
import { MalformedPayloadError, OversizedPayloadError } from "../../errors.js";
import { ZstdError, ZstdFrame } from "./zstd-frame.js";

const MAX_WINDOW = 1 << 20;

/** Bytes given to the inflater at once: a bound on what it may write before its output is counted. */
const CHUNK = 256;

/** Decompresses exactly one gzip member to at most `most` bytes; `field` names the data in errors. */
export function gzipDecompress(data: Bytes, most: number, field: string): Bytes {
  const refused = (found: string) => new MalformedPayloadError(field, "exactly one whole gzip stream", found);
  const start = gzipDataStart(data);
  if (start === null || start > data.length - 8) throw refused("no gzip header");
  const deflated = data.subarray(start, data.length - 8);
  let out: Bytes;
  try {
    out = inflate(deflated, most);
  } catch (error) {
    throw refused(String(error));
  }
  if (out.length > most) throw new OversizedPayloadError(field, `at most ${most} bytes after unpacking`, "more");
  // The library does not say where a stream ends: it ends with the last byte if it is not whole without it.
  let shorter = true;
  try {
    inflate(deflated.subarray(0, -1), most);
  } catch {
    shorter = false;
  }
  if (shorter) throw refused("bytes after it");
  const trailer = new DataView(data.buffer, data.byteOffset + data.length - 8);
  if (trailer.getUint32(0, true) !== crc32(out) || trailer.getUint32(4, true) !== out.length) {
    throw refused("another checksum");
  }
  return out;
}

/** Inflates a whole stream, or a little more than `most` bytes of one that is larger; throws for a broken one. */
function inflate(data: Bytes, most: number): Bytes {
  const parts: Uint8Array[] = [];
  let size = 0;
  const inflater = new Inflate((part) => {
    parts.push(part);
    size += part.length;
  });
  for (let at = 0; size <= most && (at < data.length || at === 0); at += CHUNK) {
    inflater.push(data.slice(at, at + CHUNK), at + CHUNK >= data.length);
  }
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Offset of the compressed data of a gzip member; null where there is no valid header. */
function gzipDataStart(data: Bytes): number | null {
  const byte = (at: number) => data[at] ?? 0;
  const flags = byte(3);
  if (byte(0) !== 0x1f || byte(1) !== 0x8b || byte(2) !== 8 || flags > 31) return null;
  let at = 10;
  if (flags & 4) at += 2 + byte(at) + (byte(at + 1) << 8);
  for (const flag of [8, 16]) {
    if (!(flags & flag)) continue;
    while (byte(at) > 0) at++;
    at++;
  }
  if (flags & 2) at += 2;
  return at < data.length ? at : null;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  return crc;
});

function crc32(data: Bytes): number {
  let crc = -1;
  for (const byte of data) crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ byte) & 255] ?? 0);
  return ~crc >>> 0;
}

/** Decompresses exactly one zstd frame to at most `most` bytes; `field` names the data in errors. */
export function zstdDecompress(data: Bytes, most: number, field: string): Bytes {
  try {
    const frame = new ZstdFrame(data);
    const size = frame.contentSize;
    if (size === null || frame.dictionary !== 0) {
      throw new MalformedPayloadError(field, "a zstd frame with its size and no dictionary", "another");
    }
    if (size > most || frame.windowSize > MAX_WINDOW) {
      throw new OversizedPayloadError(field, `at most ${most} bytes after unpacking`, `${size} claimed`);
    }
    return frame.decompress(size);
  } catch (error) {
    if (!(error instanceof ZstdError)) throw error;
    throw new MalformedPayloadError(field, "exactly one whole zstd frame", error.message);
  }
}
