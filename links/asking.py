"""Answers over a link: one short frame each way, while the device loads its model and decodes.

Responsible for the question's frame, for reading what comes back, and for asking again in codec compact where
this device's predictions are not the gateway's. Not responsible for repeats (see `links.exchange`), for links
or for terminals.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edge_runtime.budget import DailyBudget, Spent
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, UsageError
from edge_runtime.memory import AnswerMemory
from edge_runtime.online import RemoteRequest
from edge_runtime.runtime import EdgeRuntime
from links.datagram import Link
from links.exchange import QuestionExchange, RetryBudget
from links.frames import MAX_PARTS, Question, RefusalCode, answer_room, encode_question
from payload import AnchorSet, Base

REASONS = {
    RefusalCode.OVERLOADED: "it is busy",
    RefusalCode.OTHER_CONTRACT: "it has another contract; get the bundle of its service: "
    "inversespec-bundle pull, with the service's address",
    RefusalCode.NOT_UNDERSTOOD: "it does not understand the question; update the older side",
    RefusalCode.OTHER_PREDICTIONS: "its edge model is not this device's",
    RefusalCode.TOO_LONG: "the question is too long for its model, or a frame too short for an answer",
    RefusalCode.NOT_ALLOWED: "it does not know this device's key",
    RefusalCode.FAILED: "its service cannot be reached or has failed",
}

PASSING = (RefusalCode.FAILED, RefusalCode.OVERLOADED)
"""Refusals that say nothing of the question."""


@dataclass(frozen=True)
class LinkOptions:
    """Options of a question on a link.

    fraction: share of the planned denoising steps, or steps: their number; None is the service's own choice.
    largest:  bytes of the answer's frames, where less than the link's. predictive: both frames are written
              with the edge model's predictions, which takes the fewest bytes and a pass for each token.
    fallback: answer without anchors where none come, instead of failing. budget: of repeats.
    """

    fraction: float | None = None
    steps: int | None = None
    largest: int | None = None
    predictive: bool = True
    predictive_question: bool | None = None
    fallback: bool = True
    budget: RetryBudget = field(default_factory=RetryBudget)


class LinkRequest(RemoteRequest):
    """One prompt sent over a link. Decoding begins at once, and each part of the answer refines it.

    exchanges: those so far: a second one where this device's predictions were not the gateway's.
    new_id:    of request ids, which should not repeat while an answer is still on its way.
    """

    def __init__(
        self,
        link: Link,
        edge: EdgeRuntime,
        prompt: str,
        options: LinkOptions | None = None,
        new_id: Callable[[], int] = lambda: secrets.randbelow(1 << 16),
        *,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.link = link
        self._new_id = new_id
        self.options = options or LinkOptions()
        self.exchanges: list[QuestionExchange] = []
        self.question = prompt  # a frame carries one question's text, no conversation
        self._before = _traffic(link)
        super().__init__(
            edge,
            prompt,
            stream=True,
            fallback=self.options.fallback,
            timeout=None,
            daily=daily,
            memory=memory,
        )

    @property
    def where(self) -> str:
        return f"link {self.link.profile.name}"

    @property
    def spent(self) -> Spent:
        (size, money), (size_before, money_before) = _traffic(self.link), self._before
        return Spent(bytes=size - size_before, money=money - money_before)

    @property
    def asked(self) -> str:
        options = self.options
        return json.dumps([options.fraction, options.steps, options.largest])

    def _fetch(self) -> None:
        found = self._exchange(self.options.predictive, self.options.budget)
        if self.options.predictive and (found.strange or _other_predictions(found)):
            self.report.fell_back = (
                f"{self.where}: the predictions of this device and the gateway differ: codec compact instead"
            )
            found = self._exchange(False, _left(self.options.budget, found))
        if found.complete:
            return
        if found.refusal is not None:
            text = f"{self.where}: refused: {REASONS[found.refusal.code]}"
            # Where frames have no seal anyone may have refused: this device answers all the same.
            if not self.link.authenticated or found.refusal.code in PASSING:
                raise CloudUnavailableError(text)
            raise CloudRefusedError(text)
        if found.oversized:
            raise CloudUnavailableError(
                f"{self.where}: expected frames of at most {self.link.largest_received} bytes, as this end's "
                f"profile has them, found one of {found.oversized}; give both ends the same profile"
            )
        asked = f"asked {found.attempts} times" if found.attempts != 1 else "asked once"
        what = f"only {len(found.accepted)} frames of the answer came" if found.accepted else "no answer came"
        raise CloudUnavailableError(f"{self.where}: {what}, {asked}")

    def _exchange(self, predictive: bool, budget: RetryBudget) -> QuestionExchange:
        """Asks, and takes what comes; raises UsageError where the question does not fit in a frame."""
        options, prompt_ids = self.options, self.edge.prompt_ids(self.prompt)
        room = None if options.largest is None else answer_room(options.largest, MAX_PARTS - 1)
        if room is not None and room < 1:
            raise UsageError(f"largest: expected frames that hold a payload, found {options.largest} bytes")
        id = self._new_id()
        question = Question(id, self.question, options.fraction, options.steps, room, predictive)
        as_told = options.predictive_question
        with_model = predictive and (self.link.authenticated if as_told is None else as_told)
        frame = encode_question(question, self.edge.question_context(with_model))
        if len(frame) > self.link.largest:
            raise UsageError(
                f"question: expected a frame of at most {self.link.largest} bytes on {self.where}, found "
                f"{len(frame)}; ask in fewer words"
            )

        def read(data: bytes, base: Base | None) -> AnchorSet:
            return self._decoded(data, prompt_ids, base)

        exchange = QuestionExchange(self.link, frame, id, read, budget)
        self.exchanges.append(exchange)
        for anchors in exchange.anchors():
            self._take(exchange.latest, anchors)
        return exchange


def _traffic(link: Link) -> tuple[int, float]:
    """Bytes of frames and their money, both ways."""
    sent, received = link.sent, link.received
    return sent.bytes + received.bytes, sent.money + received.money


def _other_predictions(exchange: QuestionExchange) -> bool:
    refusal = exchange.refusal
    return refusal is not None and refusal.code is RefusalCode.OTHER_PREDICTIONS


def _left(budget: RetryBudget, used: QuestionExchange) -> RetryBudget:
    """What an exchange has left of its budget's airtime and time."""
    airtime = None if budget.airtime is None else budget.airtime - used.airtime
    seconds = None if budget.seconds is None else budget.seconds - used.seconds
    return replace(budget, airtime=airtime, seconds=seconds)
