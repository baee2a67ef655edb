/**
 * Keeps the page's own files, so that a second visit needs no network. The model's files are kept by the edge runtime.
 *
 * Network first: a page that has changed is shown as it is now, and kept so.
 */
declare const SHELL: readonly string[]; // the page's files, set by the build
const worker = self as unknown as ServiceWorkerGlobalScope;
const NAME = "inversespec-page";
const paths = new Set(SHELL.map((name) => new URL(name, location.href).pathname));

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
  if (request.method !== "GET" || !paths.has(new URL(request.url).pathname)) return;
  event.respondWith(
    (async () => {
      const cache = await caches.open(NAME);
      try {
        const response = await fetch(request);
        if (response.ok) event.waitUntil(cache.put(request, response.clone()));
        return response;
      } catch (error) {
        const kept = await cache.match(request, { ignoreSearch: true });
        if (kept) return kept;
        throw error;
      }
    })(),
  );
});
