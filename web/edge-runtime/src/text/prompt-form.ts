/** How a model reads prompts: from a conversation to token ids, by the rule of the contract for messages. */
import { PLAIN } from "../contract.js";
import type { ChatMessage, ChatTemplate } from "./chat-template.js";
import type { Tokenizer } from "./tokenizer.js";

/** Token ids of a conversation, up to where its answer begins. contents: as in the contract. */
export function promptIds(
  tokenizer: Tokenizer,
  template: ChatTemplate,
  contents: typeof PLAIN | undefined,
  messages: readonly ChatMessage[],
): number[] {
  const pieces = template.pieces(messages);
  return contents === PLAIN
    ? tokenizer.encodePieces(pieces)
    : tokenizer.encode(pieces.map(({ text }) => text).join(""));
}
