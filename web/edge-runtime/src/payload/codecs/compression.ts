/** Bounded decompression of gzip and deflate: output never exceeds the size that the caller allows. */
import { type Bytes, concat } from "../../bytes.js";
import { MalformedPayloadError, OversizedPayloadError } from "../../errors.js";

/** Decompresses exactly one gzip member without options to at most `most` bytes; `field` names the data in errors. */
export function gunzip(data: Bytes, most: number, field: string): Promise<Bytes> {
  return unpack("gzip", data, data.subarray(10, -8), most, field);
}

/** Decompresses exactly one deflate stream in the same way. */
export function inflate(data: Bytes, most: number, field: string): Promise<Bytes> {
  return unpack("deflate-raw", data, data, most, field);
}

/** @param deflated the deflate stream in `data`. */
async function unpack(format: CompressionFormat, data: Bytes, deflated: Bytes, most: number, field: string) {
  const refused = (found: string) => new MalformedPayloadError(field, `exactly one whole ${format} stream`, found);
  if (format === "gzip" && data[3] !== 0) throw refused("options in its header");
  const out = await read(format, data, most).catch((error) => {
    throw refused(String(error));
  });
  if (out.length > most) throw new OversizedPayloadError(field, `at most ${most} bytes after unpacking`, "more");
  // Not every platform refuses bytes after a stream: it ends with the last byte if it is not whole without it.
  const shorter = read("deflate-raw", deflated.subarray(0, -1), most);
  if (
    await shorter.then(
      () => true,
      () => false,
    )
  ) {
    throw refused("bytes after it");
  }
  return out;
}

/** Unpacks a whole stream, or a little more than `most` bytes of one that is larger; throws for a broken one. */
async function read(format: CompressionFormat, data: Bytes, most: number): Promise<Bytes> {
  const reader = new Blob([data]).stream().pipeThrough(new DecompressionStream(format)).getReader();
  const parts: Uint8Array[] = [];
  for (let size = 0; size <= most; ) {
    const { done, value } = await reader.read();
    if (done) return concat(...parts);
    parts.push(value);
    size += value.length;
  }
  await reader.cancel();
  return concat(...parts);
}
