"""Any chat server's model as one whose text streams in: `--backend openai:URL --model NAME`.

Responsible for what is known of an answer while a server writes it. Not responsible for the server's protocol
(see `edge_runtime.client.chat_server`) or for the tokens of a text (see `edge_runtime.finished`).

A step reads some pieces of the stream. What has come is committed, up to the last whole word, since the
tokens of a word may become others with its next letter; nothing else is predicted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from cloud_anchor.errors import ServerBusyError, ServerError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import OPEN, Denoised
from cloud_anchor.sampling.protocol import Left, Runs, require_room
from cloud_anchor.sampling.protocol import Prompt as Tokens
from cloud_anchor.sampling.rows import RowAnswers
from edge_runtime.client.chat_server import ChatServer
from edge_runtime.errors import CloudFailureError
from edge_runtime.finished import text_ids
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from edge_runtime.text.prompt_form import PromptForm
from payload import Contract, Extras

log = logging.getLogger(__name__)

_WORDS = re.compile(r"(?s).*\S(?= \S)")


class PromptIds(list[int]):
    """A prompt as the device reads it, with what it was made of: that is what a server reads."""

    prompt: Prompt


class ChatForm(PromptForm):
    """The prompt form of a device whose answers a chat server writes."""

    def ids(self, prompt: Prompt) -> list[int]:
        found = PromptIds(super().ids(prompt))
        found.prompt = prompt
        return found


class Streamed(Denoised):
    """A text as far as it has come; a payload of it says nothing of steps."""

    def extras(self, prompt: str | None = None, sure_of: Sequence[int] = ()) -> Extras:
        return Extras(prompt)


@dataclass(frozen=True)
class ChatModel:
    """See `protocol.AskedModel`. edge: the device's model, in whose tokens everything is counted."""

    server: ChatServer
    edge: EdgeRuntime
    source: str
    eos_ids: frozenset[int]
    vocab_rows: int
    context: int
    plan: tuple[int, int] = (1024, 64)
    parameters: int = 0

    @classmethod
    def of(cls, server: ChatServer, edge: EdgeRuntime) -> ChatModel:
        contract = edge.bundle.contract
        return cls(server, edge, server.model, contract.eos_ids, contract.vocab_size, edge.bundle.context)

    def adopt(self, contract: Contract) -> None:
        """Its answers have the device's tokens already."""

    def start(self, prompts: Sequence[Tokens], config: DenoiseConfig) -> ChatAnswers:
        """A stream begins with the first step."""
        require_room(self, prompts, config.canvas)
        rows = [ChatRow(ids, _pieces(self.server, cast(PromptIds, ids).prompt)) for ids in prompts]
        return ChatAnswers(self, config, rows)

    def runs(self, prompt: Tokens, config: DenoiseConfig, marks: Sequence[int], left: Left) -> Runs:
        client = replace(self.server.client, timeout=max(0.001, min(left(), 3600.0)))
        answers = replace(self, server=replace(self.server, client=client)).start([prompt], config)
        for mark in marks:
            while not (done := answers.done([mark])):
                answers.advance()
            yield from answers.results(done)
            if answers.rows[0].ended:
                return


def _pieces(server: ChatServer, prompt: Prompt) -> Iterator[str | None]:
    """The pieces of a server's answer, then None: a stream that has failed is not at its end."""
    try:
        yield from server.answer(prompt)
    except CloudFailureError as error:
        if error.retry_after is not None:
            raise ServerBusyError(str(error), retry_after=error.retry_after) from error
        raise ServerError(str(error)) from error
    yield None


@dataclass(eq=False)
class ChatRow:
    """An answer that is being written. shown: a part of it was a result already."""

    prompt: Tokens
    pieces: Iterator[str | None]
    text: str = ""
    steps: int = 0
    ended: bool = False
    shown: bool = False


@dataclass
class ChatAnswers(RowAnswers[ChatRow]):
    """The answers of a `ChatModel`."""

    model: ChatModel

    def advance(self) -> None:
        canvas, total = self.config.canvas, self.config.total_steps
        for row in self.rows:
            row.steps += 1
            for piece in islice(row.pieces, -(-canvas // total) if row.steps < total else None):
                row.text += piece or ""
                row.ended = piece is None

    def stopped(self, row: ChatRow) -> str | None:
        return "finished" if row.ended else None

    def result(self, row: ChatRow, reason: str) -> Denoised:
        """Raises ServerError where there is no text, and UsageError for one that the device cannot write."""
        canvas, words = self.config.canvas, _WORDS.match(row.text)
        text = row.text.strip() if row.ended else words[0] if words else ""
        if row.ended and not text:
            raise ServerError(f"{self.model.server.client}: expected an answer, found none")
        ids = text_ids(self.model.edge, text) if text else []
        if len(ids) > canvas:
            log.warning("an answer of %d tokens was cut to the canvas of %d", len(ids), canvas)
            ids = ids[:canvas]
        # A canvas as long as the text tells its length; one that was begun stays as it is.
        rest = 0 if row.ended and not row.shown else canvas - len(ids)
        row.shown = True
        end: Any = min(self.model.eos_ids) if row.ended else OPEN
        return Streamed.of_draft(
            row.prompt,
            ids,
            [1.0] * len(ids),
            ids=[*ids, *[end] * rest],
            when=[row.steps] * len(ids) + [row.steps * row.ended] * rest,
            steps=row.steps,
            total_steps=self.config.total_steps,
            eos_ids=self.model.eos_ids,
            stopped_by=reason,
            draft_ends=row.ended,
        )
