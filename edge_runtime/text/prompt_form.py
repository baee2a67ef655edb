"""Prompt form: from a conversation to the token ids that a model reads before its answer.

Cloud and device both call this, so that they read the same prompt. Not responsible for messages and templates
(see `chat`).
"""

from __future__ import annotations

from dataclasses import dataclass

from edge_runtime.text.chat import ChatTemplate, Prompt
from edge_runtime.text.tokenizer import Tokenizer
from payload.contract import Contract


@dataclass(frozen=True)
class PromptForm:
    """Tokenizer and chat template of prompts, and the contract that they define."""

    tokenizer: Tokenizer
    template: ChatTemplate
    contract: Contract

    def ids(self, prompt: Prompt) -> list[int]:
        """Ids of a conversation up to where its answer begins; raises what `chat.as_messages` does."""
        return self.tokenizer.encode_pieces(self.template.pieces(prompt))

    @property
    def opening(self) -> list[int]:
        """Ids of the text before a single question: what a model reads before it predicts one."""
        return self.tokenizer.encode_pieces(self.template.opening)
