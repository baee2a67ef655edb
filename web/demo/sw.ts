/**
 * Keeps the page's own files, so that a second visit needs no network. The model's files are kept by the edge runtime.
 *
 * Network first: a page that has changed is shown as it is now.
 */
declare const SHELL: readonly string[]; // the page's files, set by the build
const worker = self as unknown as ServiceWorkerGlobalScope;
const NAME = "inversespec-page";

worker.addEventListener("install", (event) => {
  event.waitUntil(
    (async () => {
      await (await caches.open(NAME)).addAll([...SHELL]);
      await worker.skipWaiting();
    })(),
  );
});
worker.addEventListener("activate", (event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const path = new URL(request.url).pathname;
  if (request.method !== "GET" || path.includes("/bundle/")) return;
  event.respondWith(
    fetch(request).catch(async (error) => {
      const kept = await caches.match(request, { ignoreSearch: true, cacheName: NAME });
      if (kept) return kept;
      throw error;
    }),
  );
});
