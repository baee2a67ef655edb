"""Answers over a link: one short frame each way, while the device loads its model and decodes.

Responsible for the question's frame, for reading what comes back, and for asking again in codec compact where
this device's predictions are not the gateway's. Not responsible for repeats (see `links.exchange`), for links
or for terminals.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge_runtime.budget import DailyBudget, Spent
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, LinkError, UsageError
from edge_runtime.memory import AnswerMemory
from edge_runtime.online import Cloud, RemoteRequest, Wanted
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt, as_messages
from links.datagram import Link, Traffic
from links.exchange import QuestionExchange, RetryBudget
from links.frames import (
    MAX_PARTS,
    MAX_QUESTION_BYTES,
    Question,
    RefusalCode,
    answer_room,
    encode_question,
)
from links.frames.conversation import conversation_text, messages_of, shorter
from links.kinds import open_link, parse_address
from links.seal import Seal, SealedLink
from payload import AnchorSet, Base, PayloadError

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
    stream:   decode at once and refine the answer with each frame, instead of waiting for all of them.
    """

    fraction: float | None = None
    steps: int | None = None
    largest: int | None = None
    predictive: bool = True
    predictive_question: bool | None = None
    fallback: bool = True
    budget: RetryBudget = field(default_factory=RetryBudget)
    stream: bool = True


class LinkRequest(RemoteRequest):
    """A question sent over a link, or as much of a conversation as a frame holds.

    exchanges: those so far: a second one where this device's predictions were not the gateway's.
    new_id:    of request ids, which should not repeat while an answer is still on its way.
    turn:      held while the link is used: one question is on it at a time.
    """

    def __init__(
        self,
        link: Link,
        edge: EdgeRuntime,
        prompt: Prompt,
        options: LinkOptions | None = None,
        new_id: Callable[[], int] = lambda: secrets.randbelow(1 << 16),
        *,
        turn: AbstractContextManager[Any] | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.link = link
        self._new_id = new_id
        self.options = options or LinkOptions()
        self.exchanges: list[QuestionExchange] = []
        self._turn = nullcontext() if turn is None else turn
        self._before = replace(link.sent), replace(link.received)
        super().__init__(
            edge,
            prompt,
            stream=self.options.stream,
            fallback=self.options.fallback,
            timeout=None,
            daily=daily,
            memory=memory,
        )

    @property
    def where(self) -> str:
        return where(self.link)

    @property
    def spent(self) -> Spent:
        sent, received = self._traffic
        return Spent(bytes=sent.bytes + received.bytes, money=sent.money + received.money)

    @property
    def crossed(self) -> str:
        return crossed(self.link, *self._traffic)

    @property
    def _traffic(self) -> tuple[Traffic, Traffic]:
        """What this request has sent and received."""
        sent, received = self._before
        return self.link.sent.since(sent), self.link.received.since(received)

    @property
    def asked(self) -> str:
        options = self.options
        return json.dumps([options.fraction, options.steps, options.largest])

    def _fetch(self) -> None:
        with self._turn:
            self._before = replace(self.link.sent), replace(self.link.received)
            try:
                self._converse()
            except LinkError as error:
                raise CloudUnavailableError(f"{self.where}: {error}") from error

    def _converse(self) -> None:
        found = self._exchange(self.options.predictive, self.options.budget)
        if self.options.predictive and (found.strange or _other_predictions(found)):
            self.report.fell_back = (
                f"{self.where}: the predictions of this device and the gateway differ: codec compact instead"
            )
            found = self._exchange(False, _left(self.options.budget, found))
        if found.complete:
            return
        if self.abandoned:
            raise CloudUnavailableError(f"{self.where}: the answer was no longer waited for")
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
        options = self.options
        room = None if options.largest is None else answer_room(options.largest, MAX_PARTS - 1)
        if room is not None and room < 1:
            raise UsageError(f"largest: expected frames that hold a payload, found {options.largest} bytes")
        id = self._new_id()
        as_told = options.predictive_question
        with_model = predictive and (self.link.authenticated if as_told is None else as_told)
        context = self.edge.question_context(with_model)

        def frame_of(text: str) -> bytes:
            return encode_question(
                Question(id, text, options.fraction, options.steps, room, predictive), context
            )

        text, frame = self._fitting(frame_of)
        prompt_ids = self.edge.prompt_ids(messages_of(text))

        def read(data: bytes, base: Base | None) -> AnchorSet:
            return self._decoded(data, prompt_ids, base)

        exchange = QuestionExchange(self.link, frame, id, read, budget, stopped=lambda: self.abandoned)
        self.exchanges.append(exchange)
        for anchors in exchange.anchors():
            self._take(exchange.latest, anchors)
        return exchange

    def _fitting(self, frame_of: Callable[[str], bytes]) -> tuple[str, bytes]:
        """The text and the frame of what is asked, without the oldest messages where it would be too large.

        Where the question alone does not fit, raises UsageError, and in a conversation, which goes on without
        the cloud, CloudUnavailableError.
        """
        whole = messages = as_messages(self.prompt)
        while rest := shorter(messages):
            text = conversation_text(messages)
            readable = not isinstance(messages_of(text), str)
            if readable and len(text.encode("utf-8", "replace")) <= MAX_QUESTION_BYTES:
                frame = frame_of(text)
                if len(frame) <= self.link.largest:
                    break
            messages = rest
        else:
            text = conversation_text(messages)
            try:
                frame = self._sendable(frame_of(text))
            except (UsageError, PayloadError) as error:
                if isinstance(self.prompt, str):
                    raise
                raise CloudUnavailableError(str(error)) from error
        self.report.left_out = len(whole) - len(messages)
        return text, frame

    def _sendable(self, frame: bytes) -> bytes:
        if len(frame) > self.link.largest:
            raise UsageError(
                f"question: expected a frame of at most {self.link.largest} bytes on {self.where}, found "
                f"{len(frame)}; ask in fewer words"
            )
        return frame


class LinkCloud(Cloud):
    """A gateway at the other end of a link, asked by an assistant. budget: of one question's repeats."""

    def __init__(self, link: Link, budget: RetryBudget | None = None) -> None:
        self.link, self.budget = link, budget or RetryBudget()
        self._turn = threading.Lock()

    @property
    def where(self) -> str:
        return where(self.link)

    def request(self, edge: EdgeRuntime, prompt: Prompt, wanted: Wanted) -> LinkRequest:
        # A question has no bytes for a grammar: the device places the anchors.
        options = LinkOptions(fallback=wanted.fallback, budget=self.budget, stream=wanted.stream)
        turn, daily, memory = self._turn, wanted.daily, wanted.memory
        return LinkRequest(self.link, edge, prompt, options, turn=turn, daily=daily, memory=memory)


@contextmanager
def open_cloud(
    address: str, seal: Path | None = None, airtime: float | None = None, seconds: float | None = None
) -> Iterator[LinkCloud]:
    """The gateway at a link's address, under a device's seal where one is given.

    airtime, seconds: most of one question. Raises what `open_link` does, and UsageError.
    """
    budget = retry_budget(airtime=airtime, seconds=seconds)
    if parse_address(address).kind == "sms-paste":
        raise UsageError(
            "link: expected one beside the lines of a conversation, found sms-paste, which reads standard "
            "input too; ask one question with links.ask"
        )
    with ExitStack() as opened:
        link = opened.enter_context(open_link(address))
        yield LinkCloud(link if seal is None else SealedLink(link, [Seal(seal)]), budget)


def retry_budget(
    attempts: int = RetryBudget.attempts, airtime: float | None = None, seconds: float | None = None
) -> RetryBudget:
    """A user's budget of a question; raises UsageError for airtime or seconds of none."""
    for name, value in (("airtime", airtime), ("timeout", seconds)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name}: expected seconds above 0, found {value:g}")
    return RetryBudget(attempts, airtime, seconds)


def where(link: Link) -> str:
    """A link's name in messages and budgets."""
    return f"link {link.profile.name}"


def crossed(link: Link, sent: Traffic, received: Traffic) -> str:
    """What has crossed a link, for people: bytes, frames, seconds on the air, money."""
    airtime, money = sent.airtime + received.airtime, sent.money + received.money
    parts = [f"out {_frames(sent)}, in {_frames(received)}"]
    if airtime:
        parts.append(f"{airtime:.2f} s on the air")
    cost = link.cost(1)
    if cost.currency:
        parts.append(f"{money:.4g} {cost.currency} ({cost.tariff})")
    return "; ".join(parts)


def _frames(traffic: Traffic) -> str:
    return f"{traffic.bytes} bytes in {traffic.frames} frame{'s' * (traffic.frames != 1)}"


def _other_predictions(exchange: QuestionExchange) -> bool:
    refusal = exchange.refusal
    return refusal is not None and refusal.code is RefusalCode.OTHER_PREDICTIONS


def _left(budget: RetryBudget, used: QuestionExchange) -> RetryBudget:
    """What an exchange has left of its budget's airtime and time."""
    airtime = None if budget.airtime is None else budget.airtime - used.airtime
    seconds = None if budget.seconds is None else budget.seconds - used.seconds
    return replace(budget, airtime=airtime, seconds=seconds)
