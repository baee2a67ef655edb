/**
 * A graph with float32 activations, whose logits agree across processors to about 1e-4.
 *
 * Graphs with quantised weights round activations to 8 bits where the processor is fast at that, and others do not.
 * Responsible for the one attribute that states it in a graph's bytes.
 */
import { type Bytes, utf8 } from "../bytes.js";
import { EngineError } from "../errors.js";

const NAME = utf8("accuracy_level");

// AttributeProto: field 1 the name, field 3 the integer, which follows.
const PREFIX = Uint8Array.of(0x0a, 0x0e, ...NAME, 0x18);
const FLOAT32 = 1;

/** A copy of an ONNX graph with float32 activations; throws EngineError for a graph of another form. */
export function withFp32Activations(graph: Bytes): Bytes {
  const out = graph.slice();
  let names = 0;
  let changed = 0;
  for (let at = 0; at < graph.length; at++) {
    if (matches(graph, at, NAME)) names++;
    const value = at + PREFIX.length;
    if ((graph[value] ?? 255) <= 4 && matches(graph, at, PREFIX)) {
      out[value] = FLOAT32;
      changed++;
    }
  }
  if (changed === names) return out;
  throw new EngineError("graph", `accuracy_level of 0 to 4 in ${names} places`, `it in ${changed}`, "Convert it again");
}

function matches(data: Bytes, at: number, part: Bytes): boolean {
  return part.every((byte, index) => data[at + index] === byte);
}
