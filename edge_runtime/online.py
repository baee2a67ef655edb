"""Answers with an anchor service: anchors are fetched while the device loads its model and decodes.

Responsible for decoding received payloads, for the choice of a bundle before there is a payload, and for the
fallback: where the service cannot be reached the device answers alone, and the answer's report says so. Not
responsible for HTTP (see `client`) or for terminals.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.client.client import Client, ReceivedPayload
from edge_runtime.decode.answer import Answer, ServiceReport
from edge_runtime.decode.forced import FillOptions, FillStats, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.errors import CloudUnavailableError
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Base, Shared, decode
from payload.anchors import MAX_CANVAS

GRACE_SECONDS = 2.0
"""Beyond the client's timeout, for its thread to report: a name lookup cannot be interrupted."""

IDENTITY_SECONDS = 3.0
"""Limit of the request for the service's contract, where several bundles are installed."""


@dataclass(frozen=True)
class ServiceOptions:
    """Options of a request to the service.

    fractions: shares of the planned denoising steps. One requests one payload; several, or none with
               `stream`, a stream of them. Empty is the service's own choice.
    stream:    decode at once and refine the answer as payloads arrive, instead of waiting for the payload.
    fallback:  answer without anchors where the service cannot be reached, instead of failing.
    """

    fractions: tuple[float, ...] = ()
    stream: bool = False
    fallback: bool = True


class ServiceRequest:
    """One prompt sent to a service, and the answer made with the anchors it returns.

    report: payloads received so far, and the reason where some are missing.
    """

    def __init__(
        self, client: Client, edge: EdgeRuntime, prompt: str, options: ServiceOptions | None = None
    ) -> None:
        self.client = client
        self.edge = edge
        self.prompt = prompt
        self.options = options or ServiceOptions()
        self.report = ServiceReport()
        self._feed = AnchorFeed()

    def start(self) -> ServiceRequest:
        """Sends the request in a daemon thread, and begins to load the model."""
        threading.Thread(target=self._receive, name="service", daemon=True).start()
        self.edge.preload()
        return self

    def answer(self, options: FillOptions | None = None) -> Answer[Token | Retract]:
        """The answer; to be called once, after `start`.

        With `ServiceOptions.stream` it begins at once and is refined with every payload; otherwise the call
        waits for the payload. Raises CloudUnavailableError, CloudRefusedError, and PayloadError for a payload
        that cannot be used: here, or with `stream` while the answer is iterated.
        """
        stats = FillStats()
        tokens: Generator[Token | Retract]
        if self.options.stream:
            prompt_ids = self.edge.prompt_ids(self.prompt)
            tokens = self._refined(prompt_ids, options, stats)
        else:
            self._feed.newer(0, self._timeout)
            self._check_arrival()
            prompt_ids = self.edge.prompt_ids(self.prompt)
            tokens = fill(self.edge.engine, prompt_ids, self._anchors(), options, stats)
        return Answer(
            tokens, prompt_ids, self._anchors, stats, revisable=self.options.stream, service=self.report
        )

    def _refined(
        self, prompt_ids: list[int], options: FillOptions | None, stats: FillStats
    ) -> Generator[Token | Retract]:
        contract = self.edge.bundle.contract
        yield from fill_refined(
            self.edge.engine, prompt_ids, self._feed, contract, options, stats, timeout=self._timeout
        )
        self._check_arrival()

    def _anchors(self) -> AnchorSet:
        """The latest anchors, or an empty set."""
        if self._feed.latest is not None:
            return self._feed.latest
        return AnchorSet.empty(min(self.edge.engine.context, MAX_CANVAS), self.edge.bundle.contract)

    @property
    def _timeout(self) -> float:
        return self.client.timeout + GRACE_SECONDS

    def _check_arrival(self) -> None:
        """Reports a timeout where nothing has arrived and the thread has not said why."""
        if not self.report.payload_bytes and self.report.failure is None:
            self._fail(f"{self.client.url}: it did not answer in time")

    def _receive(self) -> None:
        error: BaseException | None = None
        try:
            try:
                self._decode(self._payloads())
            except CloudUnavailableError as failure:
                self._fail(str(failure))
        except BaseException as failure:  # the reader of the feed raises it
            error = failure
        self._feed.close(error)

    def _payloads(self) -> Iterable[ReceivedPayload]:
        contract = self.edge.bundle.contract.identity
        if self.options.stream:
            fractions = list(self.options.fractions) or None
            return self.client.stream(self.prompt, fractions=fractions, contract=contract)
        fraction = self.options.fractions[0] if self.options.fractions else None
        data = self.client.fetch(self.prompt, fraction=fraction, contract=contract)
        return [ReceivedPayload(data, delta=False)]

    def _decode(self, payloads: Iterable[ReceivedPayload]) -> None:
        prompt_ids = self.edge.prompt_ids(self.prompt)
        bundle = self.edge.bundle
        base: Base | None = None
        for received in payloads:
            previous = base if received.delta else None
            shared = Shared(bundle.contract, prompt_ids, bundle.tokenizer, previous)
            anchors = decode(received.data, shared)
            base = Base(received.data, anchors)
            self.report.payload_bytes.append(len(received.data))
            self._feed.put(anchors)

    def _fail(self, failure: str) -> None:
        """Reports a failure; raises CloudUnavailableError without payloads and without a fallback."""
        if not self.options.fallback and not self.report.payload_bytes:
            raise CloudUnavailableError(failure)
        self.report.failure = failure


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
    return find_bundles(identity, model)[0]
