/** Incremental detokenizer: emits each character as soon as its last byte has arrived, U+FFFD for invalid sequences. */
import type { Tokenizer } from "./tokenizer.js";

export class TextStream {
  private readonly _decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(private readonly _tokenizer: Tokenizer) {}

  /** The text that a token completes: empty inside a character and for special tokens. */
  push(id: number): string {
    if (this._tokenizer.specialIds.has(id)) return "";
    return this._decoder.decode(this._tokenizer.tokenBytes(id), { stream: true });
  }

  /** U+FFFD where the answer ends inside a character, else empty. */
  flush(): string {
    return this._decoder.decode();
  }
}
