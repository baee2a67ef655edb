// Median milliseconds of a pass over one token and over 64, after 64 tokens in the cache; in Node.js and in browsers.
const DEPTH = 64;

export async function measure(engine, repeat) {
  await engine.append(new Array(DEPTH).fill(1), []);
  const pass = async (size) => {
    const ids = Array.from({ length: size }, (_, at) => (at * 37) % 200);
    const times = [];
    for (let round = 0; round <= repeat; round++) {
      engine.rewind(DEPTH);
      const before = performance.now();
      await engine.append(ids, [size - 1]);
      times.push(performance.now() - before);
    }
    return times.slice(1).sort((a, b) => a - b)[repeat >> 1];
  };
  return { token: await pass(1), chunk: await pass(64) };
}
