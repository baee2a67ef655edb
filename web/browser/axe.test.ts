/** No violation that axe-core finds is on the site (listings of code aside), in the demo, or on the service's page. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type axe from "axe-core";
import { chromium, type Page } from "playwright-core";
import { StaticServer } from "./static-server.js";

const at = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = (path: string) => ([executablePath, path].every(existsSync) ? false : `no ${path}, or no Chromium`);
type Ready = (page: Page) => Promise<void>;

async function accessible(t: TestContext, site: string, names: string[], ready: Ready): Promise<void> {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  t.after(() => browser.close());
  const found: string[] = [];
  for (const colorScheme of ["light", "dark"] as const) {
    const viewport = { width: colorScheme === "light" ? 390 : 1280, height: 900 };
    const page = await browser.newPage({ colorScheme, viewport });
    // Pages share their colours: in the dark a quarter of them will do.
    for (const name of names.filter((_, index) => colorScheme === "light" || index % 4 === 0)) {
      await page.goto(site + name);
      await ready(page);
      await page.evaluate(readFileSync(at("node_modules/axe-core/axe.min.js"), "utf8"));
      const { violations } = await page.evaluate<axe.AxeResults>("axe.run()");
      for (const { id, nodes } of violations) found.push(`${colorScheme} ${name} ${id}: ${nodes.map((it) => it.html)}`);
    }
  }
  assert.deepEqual(found, []);
}

const idle = async (page: Page) => void (await page.waitForSelector("body[data-state=idle]", { timeout: 300_000 }));

for (const [what, root, ready] of [
  ["the site, as make docs has built it", at("../build/site/"), async () => {}],
  ["the demo, with an answer", at("demo/dist/"), idle],
] as const) {
  test(what, { skip: skip(root), timeout: 1_200_000 }, async (t) => {
    const server = await StaticServer.start(root);
    t.after(() => server.stop());
    const names = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((it) => /(?<!py|kt)\.html$/.test(it));
    await accessible(t, server.url, names, ready);
  });
}

test("the service's page, with an answer", { skip: skip(at("../.venv/bin/python")), timeout: 600_000 }, async (t) => {
  const url = "http://127.0.0.1:18291/";
  const words = ["-m", "cloud_anchor.serve", "--model", "testbed", "--port", "18291"];
  const service = spawn(at("../.venv/bin/python"), words, { cwd: at(".."), stdio: "ignore" });
  t.after(() => service.kill());
  while (!(await fetch(`${url}readyz`).catch(() => null))?.ok) await setTimeout(500);
  await accessible(t, url, [""], (page) => page.click("#examples button").then(() => idle(page)));
});
