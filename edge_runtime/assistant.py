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
import time
from collections.abc import Generator, Iterable, Sequence

from edge_runtime.budget import DailyBudget
from edge_runtime.client.client import Client
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, Source, Token
from edge_runtime.decode.refine import AnchorFeed, Retract
from edge_runtime.errors import UsageError
from edge_runtime.memory import AnswerMemory
from edge_runtime.online import Cloud, RemoteRequest, ServiceCloud, Wanted
from edge_runtime.runtime import Schema, held_to
from edge_runtime.session import EdgeSession, TurnAnswer
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
    """A conversation in one of `MODES`. client: the service, or a link to one; None for the device alone.

    daily, memory: the day's budget of requests, and the anchors of earlier ones; None for none.
    threshold: device's doubt, 0 to 1, above which `prefer_on_device` asks the cloud; None for the bundle's.
    """

    def __init__(
        self,
        session: EdgeSession,
        client: Client | Cloud | None = None,
        *,
        mode: str | None = None,
        threshold: float | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.session, self.daily, self.memory = session, daily, memory
        self.cloud = ServiceCloud(client) if isinstance(client, Client) else client
        measured = session.edge.bundle.manifest.ask_from
        self.threshold = threshold if threshold is not None else THRESHOLD if measured is None else measured
        self.mode = mode or (PREFER_ON_DEVICE if self.cloud else ONLY_ON_DEVICE)

    @property
    def mode(self) -> str:
        """Where the next turns are answered."""
        return self._mode

    @mode.setter
    def mode(self, name: str) -> None:
        if name not in MODES:
            raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {name!r:.40}")
        if name != ONLY_ON_DEVICE and self.cloud is None:
            raise UsageError(f"mode: expected a service (--url, --link) beside {name}, found none")
        self._mode = name

    def asks_first(self, *, private: bool = False) -> str | None:
        """Who is asked before the next answer begins; None where the device writes at once."""
        if self.cloud is None or private or self.session.private:
            return None
        return self.cloud.where if self.mode in (PREFER_IN_CLOUD, ONLY_IN_CLOUD) else None

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
        assert self.cloud is not None
        self.session.check_closed()
        messages, dropped = self.session.prompt(question, options)
        wanted = Wanted(
            stream=self.mode == PREFER_ON_DEVICE,
            fallback=self.mode != ONLY_IN_CLOUD,
            grammar=held_to(options),
            daily=self.daily,
            memory=self.memory,
        )
        request = self.cloud.request(self.session.edge, messages, wanted)
        if self.mode == PREFER_ON_DEVICE:
            answer = DoubtfulRequest(request, self.threshold, delay).answer(options)
        else:
            answer = request.start().answer(options)
        return self.session.follow(messages, answer, dropped)


class DoubtfulRequest:
    """A request that is sent once the device doubts what it writes.

    request: streamed, and not sent yet. threshold, delay: as of `Assistant`.
    """

    def __init__(self, request: RemoteRequest, threshold: float, delay: float | None = None) -> None:
        self.request, self.threshold = request, threshold
        self._tokens: list[Token] = []
        request.feed = _FeedOnDoubt(self, None if delay is None else time.monotonic() + delay)

    def answer(self, options: FillOptions | None = None) -> Answer[Token | Retract]:
        """As of `RemoteRequest`: the device's own, refined where the request was sent."""
        answer = self.request.answer(options)
        return Answer(
            self._watched(answer),
            answer.prompt_ids,
            lambda: answer.anchors,
            answer.stats,
            revisable=True,
            service=answer.service,
        )

    def _watched(self, answer: Answer[Token | Retract]) -> Generator[Token | Retract]:
        try:
            for item in answer:
                if isinstance(item, Token) and not self.request.sent:
                    self._tokens.append(item)
                    if len(self._tokens) >= WATCHED:
                        self.ask_in_doubt()
                yield item
        finally:
            answer.close()

    def ask_in_doubt(self) -> None:
        """Sends the request where the device's doubt of what it has written is above the threshold."""
        doubt = device_doubt(self._tokens)
        if doubt is not None and doubt > self.threshold:
            self.request.report.doubt_before = doubt
            self.request.start()


class _FeedOnDoubt(AnchorFeed):
    """A feed that is waited for only where its request has been sent, which it decides at an answer's end."""

    def __init__(self, doubtful: DoubtfulRequest, until: float | None) -> None:
        super().__init__(until)
        self._doubtful = doubtful

    def newer(self, version: int, timeout: float | None = None) -> tuple[int, AnchorSet] | None:
        if not self._doubtful.request.sent:
            self._doubtful.ask_in_doubt()
        if not self._doubtful.request.sent:
            self.close()
        return super().newer(version, timeout)
