/**
 * Lets waiting events in: on WebAssembly a pass keeps its thread busy and its promise never leaves the microtasks, so
 * payloads that arrive, aborts and the page's own events would wait for the whole answer.
 */
export function breathe(): Promise<void> {
  if (typeof setImmediate === "function") return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel ??= open();
    channel.port2.postMessage(0);
  });
}

// Not setTimeout, which browsers round up to 4 ms.
const waiting: (() => void)[] = [];
let channel: MessageChannel | undefined;

function open(): MessageChannel {
  const created = new MessageChannel();
  created.port1.onmessage = () => waiting.shift()?.();
  return created;
}
