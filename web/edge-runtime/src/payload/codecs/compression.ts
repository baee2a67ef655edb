/** Bounded gzip and zstd decompression: output never exceeds the size that the caller allows. */
import { type Bytes, concat } from "../../bytes.js";
import { MalformedPayloadError, OversizedPayloadError } from "../../errors.js";
import { ZstdError, ZstdFrame } from "./zstd-frame.js";

const MAX_WINDOW = 1 << 20;

/** Decompresses exactly one gzip member to at most `most` bytes; `field` names the data in errors. */
export async function gzipDecompress(data: Bytes, most: number, field: string): Promise<Bytes> {
  const refused = (found: string) => new MalformedPayloadError(field, "exactly one whole gzip stream", found);
  const start = gzipDataStart(data);
  if (start === null || start > data.length - 8) throw refused("no gzip header");
  const deflated = data.subarray(start, data.length - 8);
  let out: Bytes;
  try {
    out = await inflate(deflated, most);
  } catch (error) {
    throw refused(String(error));
  }
  if (out.length > most) throw new OversizedPayloadError(field, `at most ${most} bytes after unpacking`, "more");
  // Not every platform refuses bytes after a stream: it ends with the last byte if it is not whole without it.
  const shorter = inflate(deflated.subarray(0, -1), most);
  if (
    await shorter.then(
      () => true,
      () => false,
    )
  ) {
    throw refused("bytes after it");
  }
  const trailer = new DataView(data.buffer, data.byteOffset + data.length - 8);
  if (trailer.getUint32(0, true) !== crc32(out) || trailer.getUint32(4, true) !== out.length) {
    throw refused("another checksum");
  }
  return out;
}

/** Inflates a whole stream, or a little more than `most` bytes of one that is larger; throws for a broken one. */
async function inflate(data: Bytes, most: number): Promise<Bytes> {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const parts: Uint8Array[] = [];
  const reader = stream.getReader();
  for (let size = 0; size <= most; ) {
    const { done, value } = await reader.read();
    if (done) return concat(...parts);
    parts.push(value);
    size += value.length;
  }
  await reader.cancel();
  return concat(...parts);
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
