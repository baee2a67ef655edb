/** Incremental detokenizer: emits each character as soon as its last byte has arrived, U+FFFD for invalid sequences. */
import type { Tokenizer } from "./tokenizer.js";

export class TextStream {
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(private readonly tokenizer: Tokenizer) {}

  /** The text that a token completes: empty inside a character and for special tokens. */
  push(id: number): string {
    if (this.tokenizer.specialIds.has(id)) return "";
    return this.decoder.decode(this.tokenizer.tokenBytes(id), { stream: true });
  }

  /** U+FFFD where the answer ends inside a character, else empty. */
  flush(): string {
    return this.decoder.decode();
  }
}
