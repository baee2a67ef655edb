"""Answers with the help of a cloud: anchors are fetched while the device loads its model and decodes.

Responsible for what a cloud is asked, for the device's doubt, and for the answer made with the anchors that
come, or without where none do: the answer's report says why. Not responsible for HTTP (see `client`), links
(see `links`) or conversations (see `session`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import Protocol, Self

from edge_runtime.client.question import ServiceReport
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.engine.shared import SharedModel
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from edge_runtime.text.chat import Prompt, as_messages
from payload import AnchorSet, Base, Codec, Shared, decode, doubt, peek

GRACE_SECONDS = 2.0
"""Beyond a cloud's timeout, for its thread to report: a name lookup cannot be interrupted."""

THRESHOLD = 0.5
"""Doubt above which the cloud is asked where neither a caller nor the bundle (`ask_from`) says it."""
WATCHED = 6
"""Tokens of the device before its doubt counts; at the end of a shorter answer it counts too."""


class Cloud(Protocol):
    """Who can be asked for anchors; `str` names it in messages.

    timeout: seconds after which `ask` has ended; None for a cloud that ends by itself.
    """

    @property
    def timeout(self) -> float | None: ...

    def ask(self, question: CloudQuestion) -> None:
        """Hands every payload that comes to `CloudQuestion.take`; runs in a thread of its own.

        Raises CloudUnavailableError where no more come, CloudRefusedError, and PayloadError.
        """


class CloudQuestion:
    """A question or conversation for a cloud, and the answer made with the anchors that come.

    stream:    decode at once and refine the answer as payloads arrive, instead of waiting for the last.
    fallback:  answer without anchors where none come, instead of failing.
    threshold: with `stream`, ask once the device's doubt of what it writes is above it; None: at once.
    delay:     seconds after which nothing more is taken from the cloud; None for any.
    contract:  identity of the contract that payloads are wanted for.
    report:    filled in by the cloud as payloads come.
    abandoned: whether nobody waits for what comes any more.
    """

    def __init__(
        self,
        cloud: Cloud,
        edge: EdgeRuntime,
        prompt: Prompt,
        *,
        stream: bool,
        fallback: bool = True,
        threshold: float | None = None,
        delay: float | None = None,
    ) -> None:
        self.cloud, self.edge = cloud, edge
        self.prompt: Prompt = prompt if isinstance(prompt, str) else as_messages(prompt)
        self.contract = edge.bundle.contract.identity
        self.stream, self.fallback, self.threshold = stream, fallback, threshold
        self.report = ServiceReport()
        self.abandoned = self._sent = False
        self._feed = AnchorFeed(None if delay is None else time.monotonic() + delay)
        self._latest: FillRequest | None = None

    @cached_property
    def prompt_ids(self) -> list[int]:
        return self.edge.prompt_ids(self.prompt)

    def take(
        self, data: bytes, base: Base | None = None, prompt_ids: Sequence[int] | None = None
    ) -> AnchorSet:
        """Reads a payload that has come, with the base of a delta, and continues with its anchors.

        prompt_ids: of another prompt than this question's, where the payload was made for that. Raises
        PayloadError.
        """
        header = peek(data)
        predictive = header.codec is Codec.PREDICTIVE
        if predictive and not self.stream and prompt_ids is None:
            request = self.edge.read(header, self.prompt)
        else:
            ids = list(self.prompt_ids if prompt_ids is None else prompt_ids)
            bound, bundle = header.codec.bound, self.edge.bundle
            predictor = self.edge.predictor(ids) if bound else None
            anchors = decode(header, Shared(bundle.contract, ids, bundle.tokenizer, base, predictor))
            unsure = doubt(header.extras.confidence)
            request = FillRequest(self.prompt_ids, anchors, doubt=unsure, portable=bound)
        self.report.payload_bytes.append(len(data))
        self.report.doubt = request.doubt
        self._latest = request
        self._feed.put(request.anchors)
        return request.anchors

    def send(self) -> Self:
        """Asks the cloud in a daemon thread, and begins to load the model."""
        self._sent = True
        threading.Thread(target=self.receive, name="cloud", daemon=True).start()
        self.edge.preload()
        return self

    def receive(self) -> None:
        """Asks the cloud and takes what comes, in this thread."""
        self._sent = True
        error: BaseException | None = None
        try:
            self.cloud.ask(self)
        except CloudUnavailableError as failure:
            error = self._failed(failure)
        except BaseException as failure:  # the reader of the feed raises it
            error = failure
        self._feed.close(error)

    def answer(self, options: FillOptions | None = None) -> Answer[Token | Retract]:
        """The answer; to be called once. Asks the cloud where `send` has not.

        Raises CloudUnavailableError, CloudRefusedError, and PayloadError for a payload that cannot be used:
        here, or with `stream` while the answer is iterated.
        """
        if self.stream and options is not None and options.sampling:
            raise UsageError(
                "sampling: expected greedy decoding of an answer that is refined: a sampled one would be "
                "drawn anew with every payload. Wait for the payload instead."
            )
        if not self._sent and (not self.stream or self.threshold is None):
            self.send()
        if self.stream:
            stats = FillStats()
            tokens = self._refined(options, stats)
            return Answer(
                tokens,
                self.prompt_ids,
                self._anchors,
                stats,
                revisable=True,
                service=self.report,
                not_sure_from=self.edge.bundle.manifest.not_sure_from,
            )
        try:
            self._feed.last(self._timeout)
        except KeyboardInterrupt:
            self.abandoned = True
            raise
        self._check_arrival()
        request = self._latest or FillRequest(self.prompt_ids, self._anchors())
        answer: Answer[Token | Retract] = self.edge.fill(request, options)
        answer.service = self.report
        return answer

    def _refined(self, options: FillOptions | None, stats: FillStats) -> Generator[Token | Retract]:
        own: list[Token] = []
        model, contract = self.edge.model, self.edge.bundle.contract
        try:
            if not self._sent:
                yield from self._alone(own, options, stats)
            if self._sent:
                about = self.prompt_ids, self._feed, contract, options, stats, own
                refined = fill_refined(model, *about, timeout=self._timeout, model_of=self._model)
                while True:
                    self.report.settled = self._feed.over()  # before the decoder looks for what has come
                    if (item := next(refined, None)) is None:
                        break
                    yield item
                self._check_arrival()
        finally:
            self.abandoned = True

    def _model(self) -> SharedModel:
        """The model that the latest payload is for."""
        return self.edge.model_of(self._latest) if self._latest else self.edge.model

    def _alone(
        self, written: list[Token], options: FillOptions | None, stats: FillStats
    ) -> Generator[Token | Retract]:
        """The device's tokens without anchors, until it doubts them and asks."""
        tokens = fill(self.edge.model, self.prompt_ids, self._anchors(), options, stats)
        for token in tokens:
            self.report.settled = self._feed.over()
            written.append(token)
            if len(written) >= WATCHED:
                self._ask_in_doubt(written)
            yield token
            if self._sent:
                tokens.close()
                return
        self._ask_in_doubt(written)

    def _ask_in_doubt(self, written: Sequence[Token]) -> None:
        doubts = device_doubt(written)
        assert self.threshold is not None
        if doubts is not None and doubts > self.threshold and not self._feed.over():
            self.report.doubt_before = doubts
            self.send()

    def _anchors(self) -> AnchorSet:
        """The latest anchors, or an empty set."""
        return self._feed.latest or self.edge.no_anchors

    @property
    def _timeout(self) -> float | None:
        return None if self.cloud.timeout is None else self.cloud.timeout + GRACE_SECONDS

    def _check_arrival(self) -> None:
        """Reports a timeout where nothing has arrived and the thread has not said why."""
        if not self.report.payload_bytes and self.report.failure is None:
            error = self._failed(CloudUnavailableError(f"{self.cloud}: it did not answer in time"))
            if error is not None:
                raise error

    def _failed(self, failure: CloudUnavailableError) -> CloudUnavailableError | None:
        """Reports a failure; returns it where there are neither payloads nor a fallback."""
        if not self.fallback and not self.report.payload_bytes:
            return failure
        self.report.failure = str(failure)
        return None


def device_doubt(tokens: Iterable[Token]) -> float | None:
    """One minus the geometric mean probability of the device's own tokens; None where it wrote none."""
    scores = [t.logprob for t in tokens if t.source is Source.FILL and t.logprob is not None]
    return doubt_of(scores) if scores else None


def doubt_of(logprobs: Sequence[float]) -> float:
    """The doubt of tokens with these log-probabilities (natural logarithms), at least one."""
    return 1 - math.exp(sum(logprobs) / len(logprobs))
