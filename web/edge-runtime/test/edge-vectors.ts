/** What Python makes of the shipped bundle: tests/vectors/edge_vectors.json. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ChatMessage, Token } from "../dist/index.js";
import { type Expected, REPO, readJson } from "./vectors.js";

export interface Fill {
  prompt: string;
  payload: string;
  ids: number[];
  sources: string;
  logprobs: (number | null)[];
  text: string;
  stop: string;
}

type Outcome<T> = { anchors?: T; error?: string };
type Shape = Pick<Expected, "positions" | "ids" | "canvas" | "length">;

export interface EdgeVectors {
  bundle: string;
  manifest_sha256: string;
  max_tokens: number;
  tokenizer: {
    texts: { text: string; ids: number[] }[];
    streams: { ids: number[]; pieces: string[]; tail: string }[];
  };
  sealed: ({
    payload: string;
    contract: string;
    prompt_ids: number[] | null;
    base: string | null;
  } & Outcome<Expected>)[];
  predictive: ({
    payload: string;
    prompt_ids: number[];
    base: ({ payload: string } & Shape) | null;
  } & Outcome<Shape>)[];
  fp32: Fill[];
  int8: Fill[];
  conversations: {
    system: string | null;
    reserve: number;
    max_tokens: number | null;
    turns: { question: string; payload: string | null; ids: number[]; dropped: number; source: string }[];
    messages: ChatMessage[];
  }[];
}

export const EDGE = readJson<EdgeVectors>("tests/vectors/edge_vectors.json");

/** The shipped bundle's folder. */
export const BUNDLE = fileURLToPath(new URL(`edge_runtime/bundles/${EDGE.bundle}/`, REPO));

/** All of an answer. */
export async function tokensOf(answer: AsyncIterable<Token>): Promise<Token[]> {
  const tokens: Token[] = [];
  for await (const token of answer) tokens.push(token);
  return tokens;
}

export const idsOf = async (answer: AsyncIterable<Token>) => (await tokensOf(answer)).map(({ id }) => id);

const manifest = readFileSync(`${BUNDLE}bundle.json`);
assert.equal(
  createHash("sha256").update(manifest).digest("hex"),
  EDGE.manifest_sha256,
  "edge_vectors.json is of another bundle: run python -m tests.vectors.make_edge_vectors",
);
