/** What Node.js does in its own way: files of the package. */
import { readFile } from "node:fs/promises";

/** The file `model.bin` of the payload format. */
export function modelFile(): Promise<Uint8Array> {
  return readFile(new URL("../model.bin", import.meta.url));
}
