/** One model and many callers: each gets the text of an answer alone; closed ones reject; waiting caches are few. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { MessageChannel } from "node:worker_threads";
import { Engine } from "../dist/engine/engine.js";
import { Logits } from "../dist/engine/logits.js";
import { SharedModel } from "../dist/engine/shared-model.js";
import { Turns } from "../dist/engine/turns.js";
import { EdgeModel, EdgeSession, EdgeWorker, EngineError, UsageError } from "../dist/index.js";
import { serve } from "../dist/worker/serve.js";
import { BUNDLE, EDGE, idsOf } from "./edge-vectors.js";
import { hex } from "./vectors.js";

const OPTIONS = { variant: "fp32", threads: 1 };
/** Recorded payloads of every codec, and their questions alone. */
const ASKED = EDGE.fp32
  .slice(0, 24)
  .map(({ prompt, payload }, at) => ({ prompt, payload: at % 3 ? hex(payload) : null }));

const edge = await EdgeModel.open(BUNDLE, OPTIONS);
after(() => edge.close());

const fill = (at: number, signal?: AbortSignal) =>
  edge.fill(ASKED[at]?.payload ?? null, { prompt: ASKED[at]?.prompt, maxTokens: 8, signal });
const alone: string[] = [];
for (const at of ASKED.keys()) alone.push(`${await idsOf(fill(at))}`);

test("callers side by side get the texts of answers alone", async () => {
  const fills = Number(process.env.FILLS ?? 400);
  let [made, wrong] = [0, 0];
  const work = async () => {
    while (made++ < fills) {
      const at = (made * 7919) % ASKED.length;
      const kind = (made * 31) % 8;
      if (kind === 0) for await (const _ of fill(at)) break;
      if (kind === 1) await fill(at)[Symbol.asyncIterator]().next(); // dropped, and never closed
      if (kind === 2) {
        const control = new AbortController();
        const left = assert.rejects(idsOf(fill(at, control.signal)), { name: "AbortError" });
        control.abort();
        await left;
      }
      if (kind < 3) continue;
      const talk = kind === 3 && (await EdgeSession.load(await new EdgeSession(edge).save(), edge));
      const text = idsOf(talk ? talk.ask(ASKED[at]?.prompt ?? "", { ...ASKED[at], maxTokens: 8 }) : fill(at));
      if (`${await text}` !== alone[at]) wrong++;
    }
  };
  await Promise.all(Array.from({ length: 6 }, work));
  console.log(`${fills} answers of 6 callers: ${wrong} wrong`);
  assert.equal(wrong, 0);
});

test("half-read answers take turns", async () => {
  const found = ASKED.map(() => [] as number[]);
  const streams = ASKED.map((_, at) => fill(at)[Symbol.asyncIterator]());
  for (let round = 0; round < 9; round++) {
    for (const [at, stream] of streams.entries()) {
      const { value } = await stream.next();
      if (value) found[at]?.push(value.id);
    }
  }
  assert.deepEqual(found.map(String), alone);
});

test("a closed model and a closed worker reject, whatever was left open; a second close is nothing", async () => {
  const { port1, port2 } = new MessageChannel();
  serve(port2 as never);
  const near = Object.assign(port1, { terminate: () => port1.close() });
  const worker = await EdgeWorker.open(near as never, BUNDLE, OPTIONS);
  for (const each of [await EdgeModel.open(BUNDLE, OPTIONS), worker]) {
    const open = () => each.fill(null, { prompt: "What is a river?" })[Symbol.asyncIterator]();
    const [half, running] = [open(), open()];
    await half.next();
    const rejected = assert.rejects(async () => {
      while (!(await running.next()).done);
    }, UsageError);
    await Promise.all([each.close(), each.close()]);
    await rejected;
    await assert.rejects(open().next(), UsageError);
    await assert.rejects(each.countTokens("x"), UsageError);
    await assert.rejects(idsOf(new EdgeSession(each).ask("x")), UsageError);
    await each.close();
  }
});

/** Notes the size of each pass; forks note in one list. */
class CountingEngine extends Engine {
  readonly ran: number[] = [];

  constructor() {
    super(64, 16);
  }
  protected async run(chunk: readonly number[]): Promise<Logits> {
    if (chunk.includes(15)) throw new EngineError("engine", "none", "15");
    this.ran.push(chunk.length);
    return new Logits(new Float32Array(16), 16);
  }
  async close(): Promise<void> {}
}

test("a text goes on with the cache that has most of it, few caches wait, and none after an error", async () => {
  const engine = new CountingEngine();
  const model = new SharedModel(engine, new Turns());
  const lease = async (text: number[]) => {
    for await (const _ of model.lease(text, async function* (held) {
      held.rewind(Math.min(held.commonPrefix(text), text.length - 1));
      await held.append(text.slice(held.length), []);
      yield await setImmediate(); // the others have theirs
    }));
  };
  const [up, down] = [
    [1, 2, ...Array(10).keys()],
    [1, 2, ...[...Array(10).keys()].reverse()],
  ];
  for (const text of [up, down, [...up, 7], [...down, 8]]) await lease(text);
  await assert.rejects(lease([...down, 8, 15]), EngineError);
  await lease([...down, 8, 9]);
  assert.deepEqual(engine.ran.splice(0), [12, 10, 1, 1, 12]); // the second has two tokens of the first, which keeps its own
  const texts = Array.from({ length: 20 }, (_, at) => [at % 10, at < 10 ? 0 : 1, ...up]);
  await Promise.all(texts.map(lease));
  for (const text of texts.reverse()) await lease(text);
  assert.equal(engine.ran.filter((size) => size === 1).length, 16);
});

test("turns are taken in order, and who leaves gives its place up at once", async () => {
  const [turns, order, control] = [new Turns(), [] as number[], new AbortController()];
  const passes = [0, 1, 2, 3].map((at) => turns.run(at === 2 ? control.signal : undefined, async () => order.push(at)));
  const left = assert.rejects(Promise.resolve(passes[2]), { name: "AbortError" });
  control.abort();
  await left;
  assert.deepEqual(order, []);
  await Promise.allSettled(passes);
  assert.deepEqual(order, [0, 1, 3]);
});
