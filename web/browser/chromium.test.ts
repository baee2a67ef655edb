/** The runtime and the demo in headless Chromium. */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import type * as types from "inversespec-edge-runtime";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { ISOLATED, STRICT, StaticServer } from "./static-server.js";

interface Fill {
  prompt: string;
  payload: string;
  ids: number[];
  text: string;
}
interface Vectors {
  max_tokens: number;
  fp32: Fill[];
  int8: Fill[];
}
declare const library: typeof types;
declare const openWorker: (source: string, options: types.WorkerOptions) => Promise<types.EdgeWorker>;

const WEB = new URL("../../../", import.meta.url);
const REPO = new URL("../", WEB);
const SITE = new URL("browser/build/site/", WEB);
const DEMO = fileURLToPath(new URL("demo/dist/", WEB));
const vectors = JSON.parse(readFileSync(new URL("tests/vectors/edge_vectors.json", REPO), "utf8")) as Vectors;
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = existsSync(executablePath) ? false : "Chromium is not installed: set CHROMIUM to its path";
const SECONDS = 300_000; // the machine may be busy

let browser: Browser;
before(async () => {
  if (skip) return;
  mkdirSync(SITE, { recursive: true });
  const bundle = (await import(new URL("scripts/bundle.js", WEB).href)).bundle as (
    entries: URL[],
    out: URL,
    options: object,
  ) => Promise<string[]>;
  const entries = [new URL("browser/harness.ts", WEB), new URL("demo/edge.worker.ts", WEB)];
  await bundle(entries, SITE, { splitting: true });
  for (const name of ["ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm"]) {
    cpSync(new URL(`node_modules/onnxruntime-web/dist/${name}`, WEB), new URL(`js/${name}`, SITE));
  }
  writeFileSync(new URL("index.html", SITE), '<!doctype html><script type="module" src="js/harness.js"></script>');
  cpSync(new URL("edge_runtime/bundles/testbed-qwen/", REPO), new URL("bundle/", SITE), { recursive: true });
  // Root may not use Chromium's sandbox.
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
});
after(async () => {
  if (!skip) await browser.close();
});

/** A page of the harness, once the library is there; what the browser complains about is an error. */
async function opened(url: string, context?: BrowserContext): Promise<Page & { faults: string[] }> {
  const page = Object.assign(await (context ?? (await browser.newContext())).newPage(), { faults: [] as string[] });
  page.setDefaultTimeout(SECONDS);
  page.on("console", (message) => {
    if (message.type() === "error") page.faults.push(message.text());
  });
  page.on("pageerror", (error) => page.faults.push(error.message));
  await page.goto(url);
  await until(page, () => page.evaluate(() => "openWorker" in globalThis));
  return page;
}

/** Waits for what a page cannot be waited for: its policy refuses the scripts of `waitForFunction`. */
async function until(page: Page, holds: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + SECONDS;
  while (!(await holds())) {
    if (performance.now() > end) assert.fail(`expected ${holds}, found it false after ${SECONDS} ms`);
    await page.waitForTimeout(50);
  }
}

interface Written {
  ids: number[][];
  threads: number;
}

/** The ids of answers written side by side in the page's worker. */
function write(
  page: Page,
  fills: Fill[],
  options: types.WorkerOptions,
  maxTokens = vectors.max_tokens,
): Promise<Written> {
  return page.evaluate(
    async ({ fills, options, maxTokens }) => {
      const edge = await openWorker("bundle/", options);
      const written = async ({ prompt, payload }: Fill) => {
        const data = Uint8Array.from(payload.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
        const found: number[] = [];
        for await (const token of edge.fill(data, { prompt, maxTokens })) found.push(token.id);
        return found;
      };
      const ids = await Promise.all(fills.map(written));
      const { threads } = edge.info;
      await edge.close();
      return { ids, threads };
    },
    { fills, options, maxTokens },
  );
}

function equal(found: number[][], fills: Fill[]): number {
  return fills.filter((row, at) => row.ids.join() === found[at]?.join()).length;
}

const VARIANTS = [
  { variant: "fp32", threads: 1, least: 40, headers: STRICT },
  { variant: "int8", threads: 2, least: 20, headers: { ...STRICT, ...ISOLATED } }, // it rounds activations
] as const;
for (const { variant, threads, least, headers } of VARIANTS) {
  test(`answers in ${variant} are Python's, in a worker, under a strict policy`, { skip }, async () => {
    const server = await StaticServer.start(fileURLToPath(SITE), headers);
    const page = await opened(server.url);
    const fills = vectors[variant].filter((_, at) => at % 2 === 0).slice(0, 40);
    const found = await write(page, fills, threads === 1 ? { variant } : { variant, threads });
    console.log(`Chromium, ${variant}, threads: ${threads}: ${equal(found.ids, fills)} of ${fills.length} equal`);
    assert.ok(equal(found.ids, fills) >= Math.min(least, fills.length / (variant === "int8" ? 2 : 1)));
    assert.equal(found.threads, threads);
    assert.deepEqual(page.faults, []);
    await server.stop();
  });
}

test("a download that breaks goes on where it stood, and a second visit needs no network", { skip }, async () => {
  const server = await StaticServer.start(fileURLToPath(SITE));
  const context = await browser.newContext();
  const page = await opened(server.url, context);
  server.breaks.set("fp32/model.onnx.data", 1_500_000);
  const fills = vectors.fp32.slice(0, 2);
  assert.equal(equal((await write(page, fills, { variant: "fp32" })).ids, fills), 2);
  const weights = server.requests.filter(({ path }) => path.endsWith(".data"));
  assert.equal(weights.length, 2);
  assert.ok(Number(/\d+/.exec(weights[1]?.range ?? "")?.[0]) > 1_000_000, `${weights[1]?.range}`);
  // The next visit: the manifest is asked for, and nothing else of the bundle.
  const before = server.requests.length;
  const next = await opened(server.url, context);
  assert.equal(equal((await write(next, fills, { variant: "fp32" })).ids, fills), 2);
  const again = server.requests.slice(before).filter(({ path }) => path.includes("/bundle/"));
  assert.deepEqual(
    again.map(({ path }) => path),
    ["/bundle/bundle.json"],
  );
  // Without a server, once the code is loaded: the demo has a service worker for that.
  const open = () =>
    next.evaluate(async () => {
      const edge = await library.EdgeModel.open("bundle/", { variant: "fp32" });
      await edge.close();
      return edge.info.id;
    });
  await open();
  await server.stop();
  const offline = await open();
  assert.equal(offline, "testbed-qwen");
  await context.close();
});

test("an abort ends an answer and an open; errors cross the worker whole", { skip }, async () => {
  const server = await StaticServer.start(fileURLToPath(SITE));
  const page = await opened(server.url);
  const found = await page.evaluate(async () => {
    const edge = await openWorker("bundle/", { variant: "fp32" });
    const control = new AbortController();
    const errors: unknown[][] = [];
    let tokens = 0;
    try {
      for await (const _ of edge.fill(null, { prompt: "Present Djibouti to me.", signal: control.signal })) {
        if (++tokens === 3) control.abort();
      }
    } catch (error) {
      errors.push([(error as Error).name, tokens]);
    }
    let again = 0;
    for await (const _ of edge.fill(null, { prompt: "Present Djibouti to me.", maxTokens: 4 })) again++;
    errors.push(["again", again]);
    try {
      for await (const _ of edge.fill(Uint8Array.of(0x50, 1, 2, 3), { prompt: "x" }));
    } catch (error) {
      const { name, expected, remedy } = error as types.EdgeError;
      errors.push([name, expected !== "", remedy !== ""]);
    }
    await edge.close();
    try {
      await openWorker("nothing/", {});
    } catch (error) {
      errors.push([(error as Error).name]);
    }
    return errors;
  });
  assert.deepEqual(found, [
    ["AbortError", 3],
    ["again", 4],
    ["ContractMismatchError", true, true],
    ["BundleMissingError"],
  ]);
  await server.stop();
});

test("WebGPU computes where it is, here in software; where it is not, that is said", { skip }, async () => {
  const server = await StaticServer.start(fileURLToPath(SITE), STRICT);
  const fill = vectors.fp32[0] as Fill;
  const without = await opened(server.url);
  const options = { variant: "fp32", provider: "webgpu" } as const;
  await assert.rejects(write(without, [fill], options), /a browser with WebGPU, found one without/);
  const flags = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"];
  const software = await chromium.launch({ executablePath, args: ["--no-sandbox", ...flags] });
  const page = await opened(server.url, await software.newContext());
  const adapter = await page.evaluate(async () => {
    const { gpu } = navigator as unknown as { gpu?: { requestAdapter(): Promise<object | null> } };
    return (await gpu?.requestAdapter()) != null;
  });
  if (adapter) {
    const row = { ...fill, ids: fill.ids.slice(0, 8) };
    const { ids } = await write(page, [row], options, 8);
    assert.equal(equal(ids, [row]), 1);
    assert.deepEqual(page.faults, []);
  } else {
    console.log("WebGPU: this Chromium has no adapter, not even in software");
  }
  await software.close();
  await server.stop();
});

test("the demo writes its texts in the tab, and again without a network", { skip }, async () => {
  const server = await StaticServer.start(DEMO);
  const context = await browser.newContext({ viewport: { width: 1040, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(SECONDS);
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(error.message));
  const bodies: string[] = [];
  page.on("response", async (response) => {
    if (/json|text/.test(response.headers()["content-type"] ?? "")) bodies.push(await response.text().catch(() => ""));
  });
  await page.goto(server.url);
  await page.waitForSelector("body[data-state=idle]");
  const [text, alone] = [
    await page.textContent("[data-column=cloud] .text"),
    await page.textContent("[data-column=alone] .text"),
  ];
  assert.ok(text && text.length > 10 && alone && alone.length > 10);
  assert.notEqual(text, alone);
  // No text came: neither answer is in anything that the network carried.
  for (const body of bodies) assert.ok(!body.includes(text.trim()) && !body.includes(alone.trim()));
  assert.match((await page.textContent("[data-column=cloud] .figures")) ?? "", /bytes · \d+ tokens .* doubt 0\.\d\d/);
  assert.match((await page.textContent("#network")) ?? "", /model\.onnx\.data/);
  // The slider: more steps, another payload.
  const hex = await page.textContent("[data-column=cloud] .hex");
  await page.fill("#steps", "6");
  await page.waitForSelector("body[data-state=idle]");
  assert.notEqual(await page.textContent("[data-column=cloud] .hex"), hex);
  // A payload that is pasted, and one that is none.
  const recorded = JSON.parse(readFileSync(`${DEMO}payloads.json`, "utf8"));
  await page.click("summary");
  const shown =
    recorded.questions[await page.locator("#question").evaluate((it) => (it as HTMLSelectElement).selectedIndex)];
  await page.fill("#own-question", shown.prompt);
  await page.fill("#pasted", shown.payloads[1].data);
  await page.click("#read");
  await page.waitForSelector("body[data-state=idle]");
  assert.equal(await page.textContent("[data-column=cloud] .text"), text);
  await page.fill("#pasted", "UAAAAA==");
  await page.click("#read");
  await page.waitForSelector("#fault:not([hidden])");
  assert.match((await page.textContent("#fault")) ?? "", /contract: expected/);
  // Without a server: the page and the model are still there.
  await until(page, () => page.evaluate(() => navigator.serviceWorker.controller !== null));
  await server.stop();
  await page.reload();
  await page.waitForSelector("body[data-state=idle]");
  assert.equal(await page.textContent("[data-column=cloud] .text"), text);
  assert.deepEqual(faults, []);
  await context.close();
});
