"""Answers over a link: one short frame each way, while the device loads its model and decodes.

Responsible for the question's frame, for reading what comes back, and for asking again in codec compact where
this device's predictions are not the gateway's. Not responsible for repeats (see `links.exchange`), for links
or for terminals.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from edge_runtime.cloud import CloudQuestion
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, LinkError, UsageError
from edge_runtime.form import Form
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import as_messages
from links.datagram import Link, Traffic
from links.exchange import QuestionExchange, RetryBudget
from links.frames.conversation import conversation_text, decision_text, messages_of, shorter
from links.frames.question import Question, encode_question
from links.frames.question_text import MAX_QUESTION_BYTES
from links.frames.reply import RefusalCode
from links.quota import Quota
from payload import AnchorSet, Base, PayloadError, Shared
from payload.decisions import decode_decisions

log = logging.getLogger("links")

REASONS = {
    RefusalCode.OVERLOADED: "it is busy",
    RefusalCode.OTHER_CONTRACT: "it has another contract; get the bundle of its service: "
    "python -m edge_runtime.bundle get, with the service's address",
    RefusalCode.NOT_UNDERSTOOD: "it does not understand the question; update the older side, or give it the "
    "form (--forms)",
    RefusalCode.OTHER_PREDICTIONS: "its edge model is not this device's",
    RefusalCode.TOO_LONG: "the question is too long for its model, or a frame too short for an answer",
    RefusalCode.NOT_ALLOWED: "it does not know this device's key",
    RefusalCode.FAILED: "its service cannot be reached or has failed",
}

PASSING = (RefusalCode.FAILED, RefusalCode.OVERLOADED)
"""Refusals that say nothing of the question."""


@dataclass
class LinkCloud:
    """A gateway at the other end of a link, which answers a question, or as much of a conversation as a frame
    holds (`edge_runtime.cloud.Cloud`).

    budget:     of one question's repeats. quota: of the money of all of them; None for any.
    fraction:   share of the planned denoising steps; None is the service's own choice.
    predictive: write the question with the edge model's predictions, which takes the fewest bytes and a pass
                for each token; None: where frames are authenticated, as other gateways do not read it.
    exchanges:  of the latest question: a second one where this device's predictions were not the gateway's.
    """

    link: Link
    budget: RetryBudget = field(default_factory=RetryBudget)
    quota: Quota | None = None
    fraction: float | None = None
    predictive: bool | None = None
    exchanges: list[QuestionExchange] = field(default_factory=list)

    timeout = None

    def __post_init__(self) -> None:
        self._turn = threading.Lock()  # one question is on the link at a time

    def __str__(self) -> str:
        return f"link {self.link.profile.name}"

    def ask(self, question: CloudQuestion) -> None:
        """Hands the payloads of the answer's frames to a question."""
        with self._turn:
            if self.quota is not None and not self.quota.allows(str(self), self.link.cost(1).money):
                raise CloudUnavailableError(f"{self}: the money for today is spent")
            sent, received = replace(self.link.sent), replace(self.link.received)
            self.exchanges = []
            try:
                self._converse(question)
            except LinkError as error:
                raise CloudUnavailableError(f"{self}: {error}") from error
            finally:
                out, back = self.link.sent.since(sent), self.link.received.since(received)
                question.report.crossed = crossed(self.link, out, back)
                if self.quota is not None:
                    try:
                        self.quota.record(str(self), out.money + back.money)
                    except LinkError as error:  # the answer has come and was paid for
                        log.warning("%s", error)

    def _converse(self, question: CloudQuestion) -> None:
        found = self._exchange(question, True, self.budget)
        refused = found.refusal is not None and found.refusal.code is RefusalCode.OTHER_PREDICTIONS
        if found.strange or refused:
            question.report.fell_back = (
                f"{self}: the predictions of this device and the gateway differ: codec compact instead"
            )
            found = self._exchange(question, False, self.budget.less(found.airtime, found.seconds))
            self.predictive = False  # so later questions need no second frame
        if found.complete:
            return
        if question.abandoned:
            raise CloudUnavailableError(f"{self}: the answer was no longer waited for")
        if found.refusal is not None:
            text = f"{self}: refused: {REASONS[found.refusal.code]}"
            text += f" (its bundle is {found.refusal.bundle})" if found.refusal.bundle else ""
            # Where frames have no seal anyone may have refused: this device answers all the same.
            if not self.link.authenticated or found.refusal.code in PASSING:
                raise CloudUnavailableError(text)
            raise CloudRefusedError(text)
        if found.oversized:
            raise CloudUnavailableError(
                f"{self}: expected frames of at most {self.link.largest_received} bytes, as this end's "
                f"profile has them, found one of {found.oversized}; give both ends the same profile"
            )
        asked = f"asked {found.attempts} times" if found.attempts != 1 else "asked once"
        what = f"only {len(found.accepted)} frames of the answer came" if found.accepted else "no answer came"
        raise CloudUnavailableError(f"{self}: {what}, {asked}")

    def _exchange(self, question: CloudQuestion, predictive: bool, budget: RetryBudget) -> QuestionExchange:
        """Asks, and takes what comes; raises UsageError where the question does not fit in a frame."""
        id = secrets.randbelow(1 << 16)  # which should not repeat while an answer is still on its way
        by_model = self.link.authenticated if self.predictive is None else self.predictive
        context = question.edge.question_context(predictive and by_model)
        text, frame = self._fitting(question, id, predictive, context)
        ids = question.edge.prompt_ids(messages_of(text))
        exchange = QuestionExchange(
            self.link,
            frame,
            id,
            lambda data, base: question.take(data, base, ids),
            budget,
            stopped=lambda: question.abandoned,
        )
        self.exchanges.append(exchange)
        for _ in exchange.anchors():
            pass  # the question has them
        return exchange

    def _fitting(
        self, question: CloudQuestion, id: int, predictive: bool, context: Shared
    ) -> tuple[str, bytes]:
        """The text and the frame of what is asked, without the oldest messages where it would be too large.

        Where the question alone does not fit, raises UsageError, and in a conversation, which goes on without
        the cloud, CloudUnavailableError.
        """
        whole = as_messages(question.prompt)
        messages = whole
        try:
            while True:
                text, rest = conversation_text(messages), shorter(messages)
                readable = not rest or not isinstance(messages_of(text), str)
                if not rest or (readable and len(text.encode("utf-8", "replace")) <= MAX_QUESTION_BYTES):
                    asked = Question(id, text, self.fraction, predictive=predictive)
                    frame = encode_question(asked, context)
                    if len(frame) <= self.link.largest:
                        break
                if not rest:
                    raise UsageError(
                        f"question: expected a frame of at most {self.link.largest} bytes on {self}, found "
                        f"{len(frame)}; ask in fewer words"
                    )
                messages = rest
        except (UsageError, PayloadError) as error:
            if isinstance(question.prompt, str):
                raise
            raise CloudUnavailableError(str(error)) from error
        question.report.left_out = len(whole) - len(messages)
        return text, frame


class _FormQuestion(CloudQuestion):
    """Some of a form's questions about a text. found: their probabilities."""

    def __init__(
        self, cloud: LinkCloud, edge: EdgeRuntime, form: Form, text: str, asked: Sequence[int]
    ) -> None:
        prompt, self._text = decision_text(form, text, asked)
        super().__init__(cloud, edge, prompt, stream=False)
        self._form = form
        self.found: dict[int, list[float]] = {}

    def take(
        self, data: bytes, base: Base | None = None, prompt_ids: Sequence[int] | None = None
    ) -> AnchorSet:
        self.found = decode_decisions(data, self._form.identity, self._text, self._form.sizes)
        return self.edge.no_anchors


@dataclass(frozen=True)
class LinkDecider:
    """The gateway at the other end of a link, which has a form too, as who reads it (`decisions.Decider`)."""

    cloud: LinkCloud
    edge: EdgeRuntime

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        question = _FormQuestion(self.cloud, self.edge, form, text, asked)
        self.cloud.ask(question)
        return {at: found for at, found in question.found.items() if at in asked}


def retry_budget(airtime: float | None, seconds: float) -> RetryBudget:
    """A user's budget of a question; raises UsageError for airtime or seconds of none."""
    for name, value in (("airtime", airtime), ("timeout", seconds)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name}: expected seconds above 0, found {value:g}")
    return RetryBudget(airtime=airtime, seconds=seconds)


def crossed(link: Link, sent: Traffic, received: Traffic) -> str:
    """What has crossed a link, for people: bytes, frames, seconds on the air, money."""
    airtime, money = sent.airtime + received.airtime, sent.money + received.money
    parts = [f"out {_frames(sent)}, in {_frames(received)}"]
    if airtime:
        parts.append(f"{airtime:.2f} s on the air")
    tariff = link.profile.tariff
    if tariff.currency:
        parts.append(f"{money:.4g} {tariff.currency} ({tariff.name})")
    return "; ".join(parts)


def _frames(traffic: Traffic) -> str:
    return f"{traffic.bytes} bytes in {traffic.frames} frame{'s' * (traffic.frames != 1)}"
