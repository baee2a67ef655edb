// Measurements in Chromium, for the table of bench.js.
import { existsSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { ISOLATED, StaticServer } from "../browser/build/tests/static-server.js";
import { bundle } from "./bundle.js";

const SITE = new URL("../browser/build/bench/", import.meta.url);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Yields [variant, threads, result or error] of a bundle's variants on WebAssembly; nothing where there is no Chromium. */
export async function* benchBrowser(folder, variants, repeat) {
  if (!existsSync(executablePath)) return;
  rmSync(SITE, { recursive: true, force: true });
  await bundle([new URL("bench-page.js", import.meta.url)], SITE);
  writeFileSync(new URL("index.html", SITE), '<!doctype html><script type="module" src="js/bench-page.js"></script>');
  symlinkSync(folder, fileURLToPath(new URL("bundle", SITE)));
  const server = await StaticServer.start(fileURLToPath(SITE), ISOLATED);
  try {
    for (const variant of variants) {
      for (const threads of [1, 2]) {
        // A browser for each, as a tab's memory is not given back at once.
        const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
        try {
          const page = await browser.newPage();
          page.setDefaultTimeout(0);
          await page.goto(server.url);
          await page.waitForFunction(() => "bench" in globalThis);
          const run = ([variant, threads, repeat]) => globalThis.bench(variant, threads, repeat);
          yield [variant, threads, await page.evaluate(run, [variant, threads, repeat])];
        } catch (error) {
          yield [variant, threads, error];
        } finally {
          await browser.close();
        }
      }
    }
  } finally {
    await server.stop();
  }
}
