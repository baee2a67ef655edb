// Asks a service and writes the answer on this device: node examples/ask.js URL BUNDLE QUESTION
import { EdgeModel, EdgeSession } from "inversespec-edge-runtime";

const [url, folder, question] = process.argv.slice(2);
if (!question) throw new Error('expected: node examples/ask.js http://localhost:8080 bundles/qwen "What is tin?"');
const edge = await EdgeModel.open(folder, { variant: "fp32", threads: 1 });
let text = [];
for await (const event of new EdgeSession(edge).ask(question, { cloud: url, threshold: 0 })) {
  if (event.type === "token") text.push(event.text);
  if (event.type === "retract") text = text.slice(0, event.position);
  if (event.type === "done") console.log(JSON.stringify({ text: text.join("") + event.stats.tail, ...event.stats }));
}
await edge.close();
