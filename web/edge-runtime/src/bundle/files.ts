/** Where a bundle's files come from: an address with a store of what was fetched, or a folder. */
import { type Bytes, sha256, toHex } from "../bytes.js";
import { BundleFileError, BundleHashError } from "../errors.js";
import type { FileRecord } from "./manifest.js";

/** Called with progress in bytes. */
export type OnProgress = (progress: { loaded: number; total: number; file: string }) => void;

export interface ReadOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of bytes of this file that are there. */
  readonly onBytes?: (loaded: number) => void;
}

/** The files of one bundle. */
export interface BundleFiles {
  /** The bundle's address or folder, for messages. */
  readonly where: string;
  /** The bytes of `bundle.json`; throws BundleMissingError where there is none. */
  manifest(options: ReadOptions): Promise<Bytes>;
  /** The bytes of a file, which are those of its record. */
  read(path: string, record: FileRecord, options: ReadOptions): Promise<Bytes>;
  /** The file's path on this device, from which it can be mapped; none where it has no path. */
  path?(name: string): string;
}

/** Throws where bytes are not those that a record states. */
export async function verify(where: string, data: Bytes, record: FileRecord): Promise<void> {
  if (data.length !== record.size) {
    throw new BundleFileError(where, `${record.size} bytes`, data.length, "Fetch the bundle again");
  }
  const found = await sha256Hex(data);
  if (found === record.sha256) return;
  const remedy = "It was changed on its way or on the server: fetch the bundle again";
  throw new BundleHashError(where, `SHA-256 ${record.sha256}`, found, remedy);
}

/** By the platform's own code where the page is a secure context: many times as fast. */
async function sha256Hex(data: Bytes): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  return toHex(subtle ? new Uint8Array(await subtle.digest("SHA-256", data)) : sha256(data));
}
