"""Prompt form: from a conversation to the token ids that a model reads before its answer.

Responsible for the two rules by which a contract turns messages into ids (`Contract.contents`). Cloud and
device both call this, so that they read the same prompt. Not responsible for messages and templates (see
`chat`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edge_runtime.text.chat import ChatTemplate, Piece, Prompt
from edge_runtime.text.tokenizer import Tokenizer
from payload.contract import PLAIN, Contract


@dataclass(frozen=True)
class PromptForm:
    """Tokenizer and chat template of prompts, and the contract that they define."""

    tokenizer: Tokenizer
    template: ChatTemplate
    contract: Contract

    def ids(self, prompt: Prompt) -> list[int]:
        """Ids of a conversation up to where its answer begins; raises what `chat.as_messages` does."""
        return self._encode(self.template.pieces(prompt))

    @property
    def opening(self) -> list[int]:
        """Ids of the text before a single question: what a model reads before it predicts one."""
        return self._encode(self.template.opening)

    def _encode(self, pieces: Iterable[Piece]) -> list[int]:
        if self.contract.contents == PLAIN:
            return self.tokenizer.encode_pieces(pieces)
        return self.tokenizer.encode("".join(piece.text for piece in pieces))
