/** Parses the optional fields of a payload: a byte of flags, then the fields present, in the order of the flags. */
import { MAX_CANVAS } from "../anchor-set.js";
import { strictUtf8 } from "../bytes.js";
import { MalformedPayloadError } from "../errors.js";
import type { ByteReader } from "./byte-reader.js";
import { inflate } from "./codecs/compression.js";
import type { Extras } from "./header.js";

const MAX_PROMPT_BYTES = 1 << 16;
const MAX_STEPS = 1 << 20;
const [PROMPT, STEPS, CONFIDENCE] = [1, 4, 8];

export async function readExtras(reader: ByteReader): Promise<Extras> {
  const at = reader.at;
  const flags = reader.byte("flags of the optional fields");
  if (flags === 0 || flags & ~(PROMPT | STEPS | CONFIDENCE)) {
    throw new MalformedPayloadError("flags of the optional fields", `some of 1, 4 and 8 at byte ${at}`, flags);
  }
  const prompt = flags & PROMPT ? await readPrompt(reader) : null;
  const step = flags & STEPS ? reader.varint("step", MAX_STEPS) : 0;
  const totalSteps = flags & STEPS ? reader.varint("total steps", MAX_STEPS) : 0;
  if (flags & STEPS && step === 0 && totalSteps === 0) {
    throw new MalformedPayloadError("steps", "a step or a total above 0", "0 of 0");
  }
  return { prompt, step, totalSteps, confidence: flags & CONFIDENCE ? readConfidence(reader) : [] };
}

async function readPrompt(reader: ByteReader): Promise<string> {
  const size = reader.varint("prompt length", MAX_PROMPT_BYTES);
  const packed = reader.varint("packed prompt length", MAX_PROMPT_BYTES);
  let data = reader.take(packed || size, "prompt");
  if (packed) data = await inflate(data, size, "prompt");
  if (data.length !== size) throw new MalformedPayloadError("prompt", `${size} bytes after unpacking`, data.length);
  const text = strictUtf8(data);
  if (text === null) throw new MalformedPayloadError("prompt", "UTF-8", "other bytes");
  return text;
}

/** Four 2-bit levels per byte, the first in the lowest bits. */
function readConfidence(reader: ByteReader): number[] {
  const count = reader.varint("number of confidences", MAX_CANVAS);
  if (count === 0) throw new MalformedPayloadError("number of confidences", "at least 1", 0);
  const bytes = reader.take((count + 3) >> 2, "confidences");
  const levels = Array.from({ length: 4 * bytes.length }, (_, at) => ((bytes[at >> 2] ?? 0) >> (2 * (at & 3))) & 3);
  if (levels.slice(count).some((level) => level !== 0)) {
    throw new MalformedPayloadError("confidences", "zero bits after the last one", "others");
  }
  return levels.slice(0, count);
}
