// Hostile bytes for the payload decoder: only a PayloadError may come out, in bounded time and memory.
//
//     node --max-old-space-size=64 scripts/fuzz.js [EXECUTIONS] [SEED]
//
// Inputs are mutations of the test vectors. Half are raw; the others are sealed with a right check, so that the codecs
// behind it are reached; of these some are deltas.
import { readFileSync } from "node:fs";
import { sha256 } from "../edge-runtime/dist/bytes.js";
import { AnchorSet, Contract, decode, PayloadError, peek } from "../edge-runtime/dist/index.js";
import { expectedCheck } from "../edge-runtime/dist/payload/checksum.js";
import { Prior } from "../edge-runtime/dist/payload/codecs/prior.js";

const executions = Number(process.argv[2] ?? 1_000_000);
let state = BigInt(process.argv[3] ?? 1);
const SLOW_MS = 20_000;

function random(below) {
  state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
  return Number((state >> 33n) % BigInt(below));
}
const pick = (list) => list[random(list.length)];
const fresh = (size) => Uint8Array.from({ length: size }, () => random(256));

const path = new URL("../../tests/vectors/payload_vectors.json", import.meta.url);
const document = JSON.parse(readFileSync(path, "utf8"));
const seeds = document.vectors.map((row) => new Uint8Array(Buffer.from(row.payload, "hex")));
const [toy, qwen] = ["toy", "qwen"].map((name) => new Contract(document.contracts[name]));
const prompt = [3838, 374, 279, 6722, 315, 9625, 30];
const baseOf = (contract) => ({ data: Uint8Array.of(1), anchors: new AnchorSet([0, 1, 5], [7, 8, 9], 64, contract) });
const bases = new Map([toy, qwen].map((contract) => [contract, baseOf(contract)]));
const model = (await Prior.load()).hash;
// Every byte as a token: encoding is the identity.
const tokens = { encode: (text) => [...new TextEncoder().encode(text)], tokenBytes: (id) => Uint8Array.of(id) };

function mutate(seed) {
  let out = [...seed];
  for (let left = pick([1, 1, 1, 2, 4, 8]); left > 0; left--) {
    const at = random(out.length + 1);
    const some = pick([1, 2, 8]);
    const kind = random(6);
    const index = Math.min(at, out.length - 1);
    if (kind === 0 && out.length) out[index] ^= 1 << random(8);
    if (kind === 1) out.splice(at, 0, ...fresh(some));
    if (kind === 2) out.splice(at, some);
    if (kind === 3 && out.length) out[index] = pick([0, 1, 0x7f, 0x80, 0xff]);
    if (kind === 4) out.push(...new Array(some * some).fill(some === 2 ? 255 : 0));
    if (kind === 5) out = [...out.slice(0, at), ...fresh(random(24))];
  }
  return Uint8Array.from(out.slice(0, 4096));
}

/** The input and what its reader has. */
function prepared(data) {
  const contract = random(8) === 0 ? qwen : toy;
  const promptIds = random(2) ? prompt : undefined;
  if (random(2) || data.length < 4) return [data, { contract, promptIds, tokens }];
  const compact = random(3) > 0;
  const codec = compact ? "compact" : "template-gzip";
  const base = compact && random(4) === 0 ? bases.get(contract) : undefined;
  const ids = compact ? promptIds : undefined;
  const flags = (ids ? 4 : 0) + (base ? 2 : 0) + (data[0] & 1);
  const reference = base ? [sha256(base.data)[0]] : [];
  const first = 0x40 | (compact ? 16 : 0) | flags;
  const sealed = Uint8Array.of(first, Number.parseInt(contract.tag, 16), 0, 0, ...reference, ...data.slice(4));
  const bound = { codec, contract, promptIds: ids ?? null, base: base ?? null, model };
  const check = expectedCheck(sealed, bound);
  sealed[2] = check >> 8;
  sealed[3] = check & 255;
  return [sealed, { contract, promptIds: ids, tokens, base }];
}

const began = performance.now();
let [decoded, slowest] = [0, 0];
for (let number = 1; number <= executions; number++) {
  const [data, shared] = prepared(mutate(pick(seeds)));
  const before = performance.now();
  try {
    await peek(data);
    await decode(data, shared);
    decoded++;
  } catch (error) {
    if (!(error instanceof PayloadError)) {
      console.error(`\nexecution ${number}: ${Buffer.from(data).toString("hex")}`);
      throw error;
    }
  }
  slowest = Math.max(slowest, performance.now() - before);
  if (slowest > SLOW_MS) throw new Error(`over ${SLOW_MS} ms: ${Buffer.from(data).toString("hex")}`);
  if (number % 20_000 === 0 || number === executions) {
    const rate = Math.round((1000 * number) / (performance.now() - began));
    console.log(`${number} executions, ${rate} a second, ${decoded} decoded, slowest ${Math.round(slowest)} ms`);
  }
}
console.log(`${executions} executions: no crash, no hang`);
