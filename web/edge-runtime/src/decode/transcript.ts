/** The tokens of one answer so far, with their text; the last ones may be taken back. */
import { TextStream } from "../text/text-stream.js";
import type { Tokenizer } from "../text/tokenizer.js";
import type { Source, Token } from "../token.js";
import type { RawToken } from "./forced-decoder.js";

export class Transcript {
  private _written: Token[] = [];
  private _stream: TextStream;

  constructor(private readonly _tokenizer: Tokenizer) {
    this._stream = new TextStream(_tokenizer);
  }

  /** The answer's tokens, without those of the prompt. */
  get tokens(): readonly Token[] {
    return this._written;
  }

  get ids(): number[] {
    return this._written.map((token) => token.id);
  }

  /** Geometric mean of the probabilities of the anchors; null where none was scored. */
  get agreement(): number | null {
    return this._mean("anchor");
  }

  /** One minus the geometric mean of the probabilities of the device's own tokens; null where it wrote none. */
  get deviceDoubt(): number | null {
    const mean = this._mean("fill");
    return mean === null ? null : 1 - mean;
  }

  private _mean(source: Source): number | null {
    const scores = this._written.filter((token) => token.source === source && !Number.isNaN(token.logprob));
    if (!scores.length) return null;
    return Math.exp(scores.reduce((sum, token) => sum + token.logprob, 0) / scores.length);
  }

  add(raw: RawToken): Token {
    if (raw.source === "prompt") return { ...raw, text: "" };
    const token = { ...raw, text: this._stream.push(raw.id) };
    this._written.push(token);
    return token;
  }

  /** Takes back the tokens from a position on; false where there are none. */
  retract(position: number): boolean {
    if (position >= this._written.length) return false;
    this._written = this._written.slice(0, position);
    // The decoder may stand inside a character.
    this._stream = new TextStream(this._tokenizer);
    for (const token of this._written) this._stream.push(token.id);
    return true;
  }

  /** U+FFFD where the answer ends inside a character, else empty. */
  tail(): string {
    return this._stream.flush();
  }
}
