"""Assistant: a session that decides where each turn is answered.

    assistant = Assistant(session, Client("https://anchors.example.com"), mode="prefer_on_device")
    answer = assistant.ask("Which river runs through Vienna?")

    only_on_device     the device answers alone; nothing leaves it
    prefer_on_device   the device writes at once; where it doubts what it writes the cloud is asked, and the
                       text is refined in place
    prefer_in_cloud    the cloud is asked first; where it cannot be reached the device answers alone
    only_in_cloud      the cloud's anchors, or an error

Responsible for the modes and for the device's doubt. Not responsible for conversations (see `session`) or for
requests (see `online`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterable, Sequence

from edge_runtime.budget import DailyBudget
from edge_runtime.client.client import Client
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token
from edge_runtime.decode.refine import AnchorFeed, Retract
from edge_runtime.errors import UsageError
from edge_runtime.memory import AnswerMemory
from edge_runtime.online import ServiceOptions, ServiceRequest
from edge_runtime.runtime import EdgeRuntime, Schema
from edge_runtime.session import EdgeSession, TurnAnswer
from edge_runtime.text.chat import Prompt
from payload import AnchorSet

ONLY_ON_DEVICE, PREFER_ON_DEVICE = "only_on_device", "prefer_on_device"
PREFER_IN_CLOUD, ONLY_IN_CLOUD = "prefer_in_cloud", "only_in_cloud"
MODES = (ONLY_ON_DEVICE, PREFER_ON_DEVICE, PREFER_IN_CLOUD, ONLY_IN_CLOUD)

THRESHOLD = 0.5
"""Doubt above which the cloud is asked where neither a caller nor the bundle (`ask_from`) says it."""
WATCHED = 6
"""Tokens of the device before its doubt counts; at the end of a shorter answer it counts too."""


def device_doubt(tokens: Iterable[Token]) -> float | None:
    """One minus the geometric mean probability of the device's own tokens; None where it wrote none."""
    scores = [t.logprob for t in tokens if t.source is Source.FILL and t.logprob is not None]
    return doubt_of(scores) if scores else None


def doubt_of(logprobs: Sequence[float]) -> float:
    """The doubt of tokens with these log-probabilities (natural logarithms), at least one."""
    return 1 - math.exp(sum(logprobs) / len(logprobs))


class Assistant:
    """A conversation in one of `MODES`. client: None where there is no service.

    daily, memory: the day's budget of requests, and the anchors of earlier ones; None for none.
    threshold: device's doubt, 0 to 1, above which `prefer_on_device` asks the cloud; None for the bundle's.
    """

    def __init__(
        self,
        session: EdgeSession,
        client: Client | None = None,
        *,
        mode: str | None = None,
        threshold: float | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.session, self.client, self.daily, self.memory = session, client, daily, memory
        measured = session.edge.bundle.manifest.ask_from
        self.threshold = threshold if threshold is not None else THRESHOLD if measured is None else measured
        self.mode = mode or (PREFER_ON_DEVICE if client else ONLY_ON_DEVICE)

    @property
    def mode(self) -> str:
        """Where the next turns are answered."""
        return self._mode

    @mode.setter
    def mode(self, name: str) -> None:
        if name not in MODES:
            raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {name!r:.40}")
        if name != ONLY_ON_DEVICE and self.client is None:
            raise UsageError(f"mode: expected a service (--url) beside {name}, found none")
        self._mode = name

    def ask(
        self,
        question: str,
        options: FillOptions | None = None,
        *,
        private: bool = False,
        delay: float | None = None,
        schema: Schema | None = None,
    ) -> TurnAnswer:
        """The answer to the next question. private: the device answers alone, whatever the mode, and so it
        does for the rest of the conversation, which a later question would send along. delay: seconds after
        which `prefer_on_device` takes no more from the cloud; None for any.
        schema: what the answer is a sentence of, as of `EdgeSession.ask`.

        Raises what `EdgeSession.ask` does, CloudRefusedError, and with only_in_cloud CloudUnavailableError.
        """
        options = self.session.edge.constrained(options, schema)
        self.session.private |= private
        if self.session.private or self.mode == ONLY_ON_DEVICE:
            return self.session.ask(question, options)
        assert self.client is not None
        self.session.check_closed()
        messages, dropped = self.session.prompt(question, options)
        edge = self.session.edge
        if self.mode == PREFER_ON_DEVICE:
            request: ServiceRequest = DoubtfulRequest(
                self.client,
                edge,
                messages,
                self.threshold,
                delay=delay,
                daily=self.daily,
                memory=self.memory,
            )
        else:
            asked = ServiceOptions(fallback=self.mode == PREFER_IN_CLOUD, confidence=True)
            request = ServiceRequest(
                self.client, edge, messages, asked, daily=self.daily, memory=self.memory
            ).start()
        return self.session.follow(messages, request.answer(options), dropped)


class DoubtfulRequest(ServiceRequest):
    """An answer that the device writes by itself; the service is asked once the device doubts it.

    sent: whether that has happened.
    """

    def __init__(
        self,
        client: Client,
        edge: EdgeRuntime,
        prompt: Prompt,
        threshold: float,
        *,
        delay: float | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        options = ServiceOptions(stream=True, confidence=True)
        super().__init__(client, edge, prompt, options, daily=daily, memory=memory)
        self.threshold = threshold
        self.sent = False
        self._tokens: list[Token] = []
        self._feed = _FeedOnDoubt(self, None if delay is None else time.monotonic() + delay)

    def doubts(self) -> bool:
        """Whether the device's doubt of what it has written so far is above the threshold."""
        doubt = device_doubt(self._tokens)
        return doubt is not None and doubt > self.threshold

    def ask(self) -> None:
        """Sends the request, in a thread of its own."""
        self.sent = True
        self.report.doubt_before = device_doubt(self._tokens)
        threading.Thread(target=self.receive, name="service", daemon=True).start()

    def _refined(
        self, prompt_ids: list[int], options: FillOptions | None, stats: FillStats
    ) -> Generator[Token | Retract]:
        for item in super()._refined(prompt_ids, options, stats):
            if isinstance(item, Token) and not self.sent:
                self._tokens.append(item)
                if len(self._tokens) >= WATCHED and self.doubts():
                    self.ask()
            yield item

    def _check_arrival(self) -> None:
        if self.sent:
            super()._check_arrival()


class _FeedOnDoubt(AnchorFeed):
    """A feed that is waited for only where its request has been sent, which it decides at an answer's end."""

    def __init__(self, request: DoubtfulRequest, until: float | None) -> None:
        super().__init__(until)
        self._request = request

    def newer(self, version: int, timeout: float | None = None) -> tuple[int, AnchorSet] | None:
        if not self._request.sent:
            if self._request.doubts():
                self._request.ask()
            else:
                self.close()
        return super().newer(version, timeout)
