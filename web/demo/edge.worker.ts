/** The worker in which the model runs; it tells the page what it fetches. */
import "inversespec-edge-runtime/worker";

const network = new BroadcastChannel("network");
new PerformanceObserver((list) => {
  const entries = list.getEntries() as PerformanceResourceTiming[];
  network.postMessage(entries.map(({ name, transferSize }) => [name, transferSize]));
}).observe({ type: "resource", buffered: true });
