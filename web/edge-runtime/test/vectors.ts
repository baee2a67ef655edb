/** The vectors that every implementation of the format is tested on. */
import { readFileSync } from "node:fs";
import { AnchorSet, Contract, type ContractFields, type TokenBytes } from "../dist/index.js";

export const REPO = new URL("../../../", import.meta.url);

export function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(new URL(path, REPO), "utf8")) as T;
}

export interface Expected {
  positions: number[];
  ids: number[];
  canvas: number;
  length: number | null;
  step: number;
  total_steps: number;
  prompt: string | null;
  confidence: number[];
}

export interface Vector {
  name: string;
  payload: string;
  contract: string;
  codec: string | null;
  prompt_ids: number[] | null;
  base: string | null;
  anchors: Expected | null;
  error: string | null;
}

interface Document {
  contracts: Record<string, ContractFields & { identity: string }>;
  toy_pieces: string[];
  vectors: Vector[];
}

export const DOCUMENT = readJson<Document>("tests/vectors/payload_vectors.json");

export const CONTRACTS = Object.fromEntries(
  Object.entries(DOCUMENT.contracts).map(([name, fields]) => [name, new Contract(fields)]),
);

export function hex(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "hex"));
}

/** The toy vocabulary's tokenizer: the longest piece first, from left to right; of equal pieces the lowest id. */
export class ToyTokens implements TokenBytes {
  private readonly pieces = DOCUMENT.toy_pieces;
  private readonly ids = new Map(this.pieces.map((piece, id) => [piece, id] as const).reverse());
  private readonly longest = Math.max(...this.pieces.map((piece) => piece.length));

  tokenBytes(id: number): Uint8Array {
    return hex(this.pieces[id] ?? "");
  }

  encode(text: string): number[] {
    const data = Buffer.from(text, "utf8").toString("hex");
    const ids: number[] = [];
    for (let at = 0; at < data.length; ) {
      let size = this.longest;
      while (!this.ids.has(data.slice(at, at + size))) size -= 2;
      const piece = data.slice(at, at + size);
      ids.push(this.ids.get(piece) ?? 0);
      at += piece.length;
    }
    return ids;
  }
}

export function anchorsOf(fields: Expected, contract: Contract): AnchorSet {
  return new AnchorSet(fields.positions, fields.ids, fields.canvas, contract, fields.length);
}

/** What a decoded set holds, to compare it by value. */
export function held(anchors: AnchorSet): object {
  const { positions, ids, canvas, length } = anchors;
  return { positions, ids, canvas, length };
}

/** The name of the class of an error as Python has it. */
export function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : String(error);
}
