/** What a browser does in its own way: files of the package. */

/** The file `model.bin` of the payload format. */
export async function modelFile(): Promise<Uint8Array> {
  const response = await fetch(new URL("../model.bin", import.meta.url));
  if (!response.ok) throw new Error(`model.bin: expected the file beside the code, found status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
