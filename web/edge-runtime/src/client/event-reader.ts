/** Server-sent events of a response, one after the other, in bounded memory. */
import { CloudUnavailableError } from "../errors.js";
import { MAX_PAYLOAD_BYTES } from "../payload/opened-payload.js";

/** A payload in base64 and the JSON around it. */
const MAX_LINE = Math.ceil((MAX_PAYLOAD_BYTES * 4) / 3) + 4096;

export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<{ name: string; data: string }> {
  let name = "message";
  let data = "";
  for await (const line of readLines(body)) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).trim();
    if (line === "") {
      if (data) yield { name, data };
      name = "message";
      data = "";
    } else if (field === "event") {
      name = value;
    } else if (field === "data") {
      data = value;
    }
  }
}

/** Lines without their ends; a line without an end belongs to no event. */
async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      if (Math.max(rest.length, ...lines.map((line) => line.length)) > MAX_LINE) {
        throw new CloudUnavailableError("stream", `lines of at most ${MAX_LINE} bytes`, "more");
      }
      for (const line of lines) yield line.replace(/\r$/, "");
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
