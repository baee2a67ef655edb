/**
 * A graph with float32 activations, whose logits agree across processors to about 1e-4.
 *
 * Graphs with quantised weights round activations to 8 bits where the processor is fast at that, and others do not.
 * Responsible for the one attribute that states it in a graph's bytes.
 */
import { type Bytes, occurrences, utf8 } from "../bytes.js";
import { EngineError } from "../errors.js";

const NAME = utf8("accuracy_level");

const FLOAT32 = 1;

/** A copy of an ONNX graph with float32 activations; throws EngineError for a graph of another form. */
export function withFp32Activations(graph: Bytes): Bytes {
  const out = graph.slice();
  let names = 0;
  let changed = 0;
  // AttributeProto: field 1 the name, field 3 the integer.
  for (const at of occurrences(graph, NAME)) {
    names++;
    const value = at + NAME.length + 1;
    const isField = graph[at - 2] === 0x0a && graph[at - 1] === NAME.length && graph[value - 1] === 0x18;
    if (isField && (graph[value] ?? 255) <= 4) {
      out[value] = FLOAT32;
      changed++;
    }
  }
  if (changed === names) return out;
  throw new EngineError("graph", `accuracy_level of 0 to 4 in ${names} places`, `it in ${changed}`, "Convert it again");
}
