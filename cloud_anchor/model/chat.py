"""Any chat server's model as one whose text streams in: `--backend openai:URL --model NAME`.

Responsible for what is known of an answer while a server writes it: what has come is committed, up to the
last whole word, since its tokens may become others with the next letter. Not responsible for the protocol
(see `edge_runtime.client.chat_server`) or for the tokens of a text (see `edge_runtime.finished`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from cloud_anchor.errors import ServerBusyError, ServerError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import OPEN, Denoised
from cloud_anchor.sampling.protocol import Left, Runs, require_room
from cloud_anchor.sampling.rows import AskedAnswers, AskedRow
from edge_runtime.client.chat_server import ChatServer
from edge_runtime.errors import CloudFailureError
from edge_runtime.finished import text_ids
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from edge_runtime.text.prompt_form import PromptForm
from payload import Contract, Extras

log = logging.getLogger(__name__)

CANVAS, STEPS = 1024, 64
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
    """See `protocol.AskedModel`. edge: the device's model, in whose tokens all is counted. A step reads some
    pieces of the stream.
    """

    server: ChatServer
    edge: EdgeRuntime
    source: str
    eos_ids: frozenset[int]
    vocab_rows: int
    context: int
    plan: tuple[int, int] = (CANVAS, STEPS)
    parameters: int = 0

    @classmethod
    def of(cls, server: ChatServer, edge: EdgeRuntime) -> ChatModel:
        contract = edge.bundle.contract
        return cls(server, edge, server.model, contract.eos_ids, contract.vocab_size, edge.bundle.context)

    def adopt(self, contract: Contract) -> None:
        """Its answers have the device's tokens already."""

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> AskedAnswers:
        require_room(self, prompts, config.canvas)
        seconds = self.server.client.timeout
        return AskedAnswers(self, config, [AskedRow(prompt) for prompt in prompts], seconds)

    def runs(self, prompt: Sequence[int], config: DenoiseConfig, marks: Sequence[int], left: Left) -> Runs:
        """As the protocol says; and UsageError for a text that the device cannot write."""
        client = replace(self.server.client, timeout=max(0.001, min(left(), 3600.0)))
        pieces = replace(self.server, client=client).answer(cast(PromptIds, prompt).prompt)
        each, before, text = -(-config.canvas // config.total_steps), 0, ""
        try:
            for mark in marks:
                most = each * (mark - before) if mark < config.total_steps else None
                found = list(islice(pieces, most))
                text, ended = text + "".join(found), most is None or len(found) < most
                steps = min(mark, before + max(1, -(-len(found) // each)))
                yield self._run(prompt, config, text, steps, ended, before > 0)
                if ended:
                    return
                before = mark
        except CloudFailureError as error:
            if error.retry_after is not None:
                raise ServerBusyError(str(error), retry_after=error.retry_after) from error
            raise ServerError(str(error)) from error

    def _run(
        self, prompt: Sequence[int], config: DenoiseConfig, text: str, steps: int, ended: bool, begun: bool
    ) -> Denoised:
        words = _WORDS.match(text)
        text = text.strip() if ended else words[0] if words else ""
        if ended and not text:
            raise ServerError(f"{self.server.client}: expected an answer, found none")
        ids = text_ids(self.edge, text) if text else []
        if len(ids) > config.canvas:
            log.warning("an answer of %d tokens was cut to the canvas of %d", len(ids), config.canvas)
            ids = ids[: config.canvas]
        # A canvas as long as the text tells its length; one that was begun stays as it is.
        rest = 0 if ended and not begun else config.canvas - len(ids)
        end: Any = min(self.eos_ids) if ended else OPEN
        return Streamed.of_draft(
            prompt,
            ids,
            [1.0] * len(ids),
            ids=[*ids, *[end] * rest],
            when=[steps] * len(ids) + [steps * ended] * rest,
            steps=steps,
            total_steps=config.total_steps,
            eos_ids=self.eos_ids,
            stopped_by="finished" if ended else "steps",
            draft_ends=ended,
        )
