// Milliseconds a token in Chromium by variant and threads, for the table that bench.js begins.
import { cpSync, existsSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ISOLATED, StaticServer } from "../browser/build/tests/static-server.js";
import { bundle } from "./bundle.js";

const WEB = new URL("../", import.meta.url);
const SITE = new URL("browser/build/site/", WEB);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const TOKENS = 100;

/** Prints a row for each variant and number of threads; none where there is no Chromium. */
export async function benchBrowser(folder) {
  if (!existsSync(executablePath)) return;
  await bundle([new URL("browser/harness.ts", WEB), new URL("demo/edge.worker.ts", WEB)], SITE);
  writeFileSync(new URL("index.html", SITE), '<!doctype html><script type="module" src="js/harness.js"></script>');
  cpSync(folder, fileURLToPath(new URL("bundle", SITE)), { recursive: true });
  const server = await StaticServer.start(fileURLToPath(SITE), ISOLATED);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  for (const variant of ["fp32", "int8", "int4"]) {
    for (const threads of [1, 2]) {
      const page = await browser.newPage();
      await page.goto(server.url);
      await page.waitForFunction(() => "openWorker" in globalThis);
      const milliseconds = await page.evaluate(
        async ([variant, threads, maxTokens]) => {
          const edge = await globalThis.openWorker("bundle/", { variant, threads });
          let best = Infinity;
          for (let round = 0; round < 3; round++) {
            const answer = edge.fill(null, { prompt: "Present Djibouti to me.", maxTokens });
            for await (const _ of answer);
            const { fillSeconds, passes } = await answer.stats;
            best = Math.min(best, (1000 * fillSeconds) / (passes - 1));
          }
          await edge.close();
          return best;
        },
        [variant, threads, TOKENS],
      );
      console.log(`| onnxruntime-web, Chromium | ${variant} | ${threads} | ${milliseconds.toFixed(2)} | |`);
      await page.close();
    }
  }
  await browser.close();
  await server.stop();
}
