"""Answers with an anchor service: anchors are fetched while the device loads its model and decodes.

Responsible for decoding received payloads, for the choice of a bundle before there is a payload, and for
both fallbacks: where the service cannot be reached the device answers alone; where its predictions are not
those of a predictive payload it asks for a compact one. The answer's report says so. Not responsible for HTTP
(see `client`) or for terminals.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from edge_runtime.budget import DailyBudget, Spent
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.client.client import Client, ReceivedPayload, body_of
from edge_runtime.decode.answer import Answer, ServiceReport
from edge_runtime.decode.forced import FillOptions, FillStats, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError
from edge_runtime.grammar.grammar import Grammar, Kind
from edge_runtime.memory import AnswerMemory, Remembered
from edge_runtime.runtime import EdgeRuntime, FillRequest, decode_for
from edge_runtime.text.chat import Prompt, as_messages
from payload import AnchorSet, Base, Codec, PayloadError, Shared, doubt, encode, peek
from payload.anchors import MAX_CANVAS
from payload.errors import FingerprintError

GRACE_SECONDS = 2.0
"""Beyond the client's timeout, for its thread to report: a name lookup cannot be interrupted."""

NO_SCHEMA = "schema_unsupported"
"""Code of a service that makes payloads for no schema."""

IDENTITY_SECONDS = 3.0
"""Limit of the request for the service's contract, where several bundles are installed."""


@dataclass(frozen=True)
class ServiceOptions:
    """Options of a request to the service.

    fractions: shares of the planned denoising steps. One requests one payload; several, or none with
               `stream`, a stream of them. Empty is the service's own choice.
    stream:    decode at once and refine the answer as payloads arrive, instead of waiting for the payload.
    fallback:  answer without anchors where the service cannot be reached, instead of failing.
    confidence: ask how sure the diffusion model is of each anchor: the answer's doubt.
    codec:     label of the codec of the payloads, "compact" or "predictive". None is the service's own
               choice. A predictive payload that this device cannot decode is replaced by a compact one.
    """

    fractions: tuple[float, ...] = ()
    stream: bool = False
    fallback: bool = True
    codec: str | None = None
    confidence: bool = False


class RemoteRequest(ABC):
    """What is asked elsewhere, a question or a conversation, and the answer made with the anchors that come.

    report: payloads received so far, and the reason where some are missing.
    stream: decode at once and refine the answer as payloads arrive, instead of waiting for the payload.
    fallback: answer without anchors where none come, instead of failing.
    timeout: seconds after which the thread that receives has reported; None for a thread that knows itself.
    grammar: of the answer, to be held by the options of `answer` too; payloads may be made for it.
    daily, memory: the day's budget, and where the anchors of earlier requests are; None for none.
    feed:   where the anchors arrive; another one may take its place before the request is sent.
    sent:   whether the request is under way. abandoned: whether nobody waits for what comes any more.
    """

    def __init__(
        self,
        edge: EdgeRuntime,
        prompt: Prompt,
        *,
        stream: bool,
        fallback: bool,
        timeout: float | None,
        grammar: Grammar | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.edge = edge
        self.grammar = grammar
        self.prompt = prompt if isinstance(prompt, str) else as_messages(prompt)
        self.report = ServiceReport()
        self._stream, self._fallback, self._timeout = stream, fallback, timeout
        self._daily, self._memory = daily, memory
        self.feed = AnchorFeed()
        self.sent = self.abandoned = False
        self._request: FillRequest | None = None  # of a predictive payload at hand: its tokens are known

    @abstractmethod
    def _fetch(self) -> None:
        """Receive payloads and hand each to `_take`; raises CloudUnavailableError where no more come."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Who is asked, as messages and budgets name it."""

    @property
    @abstractmethod
    def spent(self) -> Spent:
        """What was sent and received so far, beside one request."""

    @property
    def crossed(self) -> str | None:
        """What crossed a link so far, in words; None where that is no more than `spent`."""
        return None

    @property
    def asked(self) -> str:
        """What is asked beside the prompt: other answers are remembered apart."""
        return ""

    def start(self) -> Self:
        """Sends the request in a daemon thread, and begins to load the model."""
        self.sent = True
        threading.Thread(target=self.receive, name="service", daemon=True).start()
        self.edge.preload()
        return self

    def answer(self, options: FillOptions | None = None) -> Answer[Token | Retract]:
        """The answer; to be called once, after `start` or `receive`.

        With `stream` it begins at once and is refined with every payload; otherwise the call waits for the
        payload. Raises CloudUnavailableError, CloudRefusedError, and PayloadError for a payload that cannot
        be used: here, or with `stream` while the answer is iterated.
        """
        stats = FillStats()
        tokens: Generator[Token | Retract]
        if self._stream:
            prompt_ids = self.edge.prompt_ids(self.prompt)
            tokens = self._refined(prompt_ids, options, stats)
        else:
            try:
                self.feed.last(self._timeout)
            except KeyboardInterrupt:
                self.abandoned = True
                raise
            self._check_arrival()
            if self._request is not None:
                answer: Answer[Token | Retract] = self.edge.fill(self._request, options)
                answer.service = self.report
                return answer
            prompt_ids = self.edge.prompt_ids(self.prompt)
            tokens = fill(self.edge.engine, prompt_ids, self._anchors(), options, stats)
        return Answer(tokens, prompt_ids, self._anchors, stats, revisable=self._stream, service=self.report)

    def _refined(
        self, prompt_ids: list[int], options: FillOptions | None, stats: FillStats
    ) -> Generator[Token | Retract]:
        contract, feed = self.edge.bundle.contract, self.feed
        refined = fill_refined(
            self.edge.engine, prompt_ids, feed, contract, options, stats, timeout=self._timeout
        )
        try:
            while True:
                if feed.until is not None and not self.report.settled and time.monotonic() >= feed.until:
                    feed.settle()  # before the decoder goes on and looks for what has come
                    self.report.settled = True
                if (item := next(refined, None)) is None:
                    break
                yield item
        finally:
            self.abandoned = True
        if self.sent:
            self._check_arrival()

    def _anchors(self) -> AnchorSet:
        """The latest anchors, or an empty set."""
        if self.feed.latest is not None:
            return self.feed.latest
        return AnchorSet.empty(min(self.edge.engine.context, MAX_CANVAS), self.edge.bundle.contract)

    def _check_arrival(self) -> None:
        """Reports a timeout where nothing has arrived and the thread has not said why."""
        report = self.report
        if not report.payload_bytes and report.failure is None and not report.remembered:
            self._fail(f"{self.where}: it did not answer in time")

    def receive(self) -> None:
        """Sends the request and takes what comes, in this thread; `start` does it in one of its own."""
        self.sent = True
        error: BaseException | None = None
        try:
            try:
                self._ask()
            except CloudUnavailableError as failure:
                self._fail(str(failure))
        except BaseException as failure:  # the reader of the feed raises it
            error = failure
        self.feed.close(error)

    def _ask(self) -> None:
        """Takes what is remembered, or fetches within the day's budget."""
        memory, bundle = self._memory, self.edge.bundle
        if memory is None:
            return self._fetch_counted()
        model = bundle.manifest.fingerprint(bundle.variant_name).hex()
        said = self.prompt if isinstance(self.prompt, str) else [list(message) for message in self.prompt]
        key = memory.key(bundle.contract.identity, model, self.where, self.asked, said)
        prompt_ids = self.edge.prompt_ids(self.prompt)
        if (known := memory.get(key)) is not None:
            with contextlib.suppress(PayloadError):
                anchors = self._decoded(known.payload, prompt_ids, None)
                self.report.remembered, self.report.doubt = True, known.doubt
                return self.feed.put(anchors)
        self._fetch_counted()
        if (latest := self.feed.latest) is not None:
            data = encode(latest, Shared(latest.contract, prompt_ids, bundle.tokenizer))
            memory.put(key, Remembered(data, self.report.doubt))

    def _fetch_counted(self) -> None:
        if self._daily is not None:
            self._daily.begin(self.where)
        try:
            self._fetch()
        finally:
            self.report.spent, self.report.crossed = Spent(requests=1) + self.spent, self.crossed
            if self._daily is not None:
                self._daily.spend(self.where, self.spent)

    def _decoded(self, data: bytes, prompt_ids: list[int], base: Base | None) -> AnchorSet:
        """The anchors of a payload; raises PayloadError."""
        predictive = peek(data).codec is Codec.PREDICTIVE
        predictor = self.edge.predictive_model.predictor(prompt_ids) if predictive else None
        bundle = self.edge.bundle
        shared = Shared(bundle.contract, prompt_ids, bundle.tokenizer, base, predictor)
        return decode_for(self.grammar, data, shared)

    def _take(self, data: bytes, anchors: AnchorSet) -> None:
        """Continues with the anchors of a payload that has arrived."""
        self.report.payload_bytes.append(len(data))
        self.report.doubt = doubt(peek(data).extras.confidence)
        self.feed.put(anchors)

    def _fail(self, failure: str) -> None:
        """Reports a failure; raises CloudUnavailableError without payloads and without a fallback."""
        if not self._fallback and not self.report.payload_bytes:
            raise CloudUnavailableError(failure)
        self.report.failure = failure


class ServiceRequest(RemoteRequest):
    """A question or conversation sent to a service over HTTP."""

    def __init__(
        self,
        client: Client,
        edge: EdgeRuntime,
        prompt: Prompt,
        options: ServiceOptions | None = None,
        *,
        grammar: Grammar | None = None,
        daily: DailyBudget | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.client = client
        self.options = options or ServiceOptions()
        super().__init__(
            edge,
            prompt,
            stream=self.options.stream,
            fallback=self.options.fallback,
            timeout=client.timeout + GRACE_SECONDS,
            grammar=grammar,
            daily=daily,
            memory=memory,
        )
        self._sent = 0
        kind = None if grammar is None else grammar.kind
        self._schema = json.loads(grammar.text) if grammar and kind is Kind.JSON_SCHEMA else None

    @property
    def where(self) -> str:
        return self.client.url

    @property
    def spent(self) -> Spent:
        price = 0.0 if self._daily is None else self._daily.price
        return Spent(bytes=self._sent + sum(self.report.payload_bytes), money=price)

    @property
    def asked(self) -> str:
        grammar = None if self.grammar is None else self.grammar.identity
        return json.dumps([self.options.fractions, self.options.codec, *([grammar] if grammar else [])])

    def _fetch(self) -> None:
        end = time.monotonic() + self.client.timeout
        try:
            self._decode(self._payloads(self.client, self.options.codec))
        except FingerprintError as other:
            self._ask_again(f"{other}; asked for it", end, Codec.COMPACT.label)
        except CloudRefusedError as other:
            if other.code != NO_SCHEMA or self._schema is None:
                raise
            self._schema = None
            why = f"{self.where}: it makes payloads for no schema; asked for one without"
            self._ask_again(why, end, self.options.codec)

    def _ask_again(self, why: str, end: float, codec: str | None) -> None:
        """Asks for what can be used; both requests have the time of one: the reader waits no longer."""
        left = end - time.monotonic()
        if left <= 0:
            raise CloudUnavailableError(f"{self.where}: no time was left to ask again ({why})")
        self.report.fell_back = why
        self._decode(self._payloads(replace(self.client, timeout=left), codec))

    def _payloads(self, client: Client, codec: str | None) -> Iterable[ReceivedPayload]:
        fields = {
            "contract": self.edge.bundle.contract.identity,
            "codec": codec,
            "confidence": self.options.confidence or None,
            "json_schema": self._schema,
        }
        self._sent += len(body_of(self.prompt, fields))
        if self.options.stream:
            fractions = list(self.options.fractions) or None
            return client.stream(self.prompt, fractions=fractions, **fields)
        fraction = self.options.fractions[0] if self.options.fractions else None
        data = client.fetch(self.prompt, fraction=fraction, **fields)
        return [ReceivedPayload(data, delta=False)]

    def _decode(self, payloads: Iterable[ReceivedPayload]) -> None:
        prompt_ids = self.edge.prompt_ids(self.prompt)
        base: Base | None = None
        for received in payloads:
            if peek(received.data).codec is Codec.PREDICTIVE and not self.options.stream:
                self._request = self.edge.read(received.data, self.prompt)
                anchors = self._request.anchors
            else:
                anchors = self._decoded(received.data, prompt_ids, base if received.delta else None)
            base = Base(received.data, anchors)
            self._take(received.data, anchors)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How an assistant asks, whichever cloud it has; the fields are those of `RemoteRequest`."""

    stream: bool
    fallback: bool
    grammar: Grammar | None
    daily: DailyBudget | None
    memory: AnswerMemory | None


class Cloud(ABC):
    """Where an assistant asks."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Who is asked, as `RemoteRequest.where`."""

    @abstractmethod
    def request(self, edge: EdgeRuntime, prompt: Prompt, wanted: Wanted) -> RemoteRequest:
        """A request that is not sent yet."""


@dataclass(frozen=True)
class ServiceCloud(Cloud):
    """A service over HTTP."""

    client: Client

    @property
    def where(self) -> str:
        return self.client.url

    def request(self, edge: EdgeRuntime, prompt: Prompt, wanted: Wanted) -> ServiceRequest:
        options = ServiceOptions(stream=wanted.stream, fallback=wanted.fallback, confidence=True)
        return ServiceRequest(
            self.client,
            edge,
            prompt,
            options,
            grammar=wanted.grammar,
            daily=wanted.daily,
            memory=wanted.memory,
        )


def choose_bundle(client: Client, model: str | None) -> Path:
    """The bundle to use before there is a payload: the one named, the only one installed, or the one that
    fits the service's contract.

    Raises what `lookup.find_bundles` does, and CloudRefusedError.
    """
    found = find_bundles("", model)
    if len(found) == 1:
        return found[0]
    try:
        timeout = min(IDENTITY_SECONDS, client.timeout)
        identity = replace(client, timeout=timeout, attempts=1).identity()
    except CloudUnavailableError:
        return found[0]  # the request for anchors will fail as well, and that is reported
    return find_bundles(identity, model, url=shlex.quote(client.url))[0]
