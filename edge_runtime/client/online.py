"""An answer made with a service at hand: what it sends is brought while the device loads and writes.

Knows how bytes from the network become anchors in a feed, which bundle to use before there is a payload, and
what to do where the network is gone: the device then answers alone, and says so. Does not know terminals.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.client.client import Client, Sent
from edge_runtime.decode.forced import FillOptions, FillStats, Token
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.errors import CloudUnavailableError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from payload import AnchorSet, Base, Shared, decode
from payload.anchors import MAX_CANVAS

PATIENCE = 2.0
"""Seconds beyond the cloud's own timeout in which its thread may still say what happened: looking up a name
cannot be interrupted."""

LOOK_UP = 3.0
"""Seconds to find out which bundle suits the service, where several are installed."""


@dataclass(frozen=True)
class ServiceOptions:
    """What is asked of the service.

    fractions: of the planned steps. One asks for one payload; several, or none with `stream`, for a stream
               of them. Empty is the service's own choice.
    stream:    write at once and refine, instead of waiting for the payload.
    fallback:  answer alone where the service cannot be reached, instead of failing.
    """

    fractions: tuple[float, ...] = ()
    stream: bool = False
    fallback: bool = True


@dataclass
class Online:
    """The service's part of one answer. `trouble`: why it has none, or not all of it."""

    cloud: Client
    edge: EdgeRuntime
    prompt: str
    wish: ServiceOptions
    feed: AnchorFeed = field(default_factory=AnchorFeed)
    sizes: list[int] = field(default_factory=list)
    trouble: str | None = None

    def start(self) -> Online:
        """Asks, in a thread of its own that nothing has to wait for, and loads the model meanwhile."""
        threading.Thread(target=self._bring, name="cloud", daemon=True).start()
        self.edge.preload()
        return self

    def request(self) -> FillRequest:
        """Waits for the payload; anchors are empty where there is none and the device is to answer alone.

        Raises CloudUnavailableError, CloudRefusedError, and PayloadError for a payload that cannot be used.
        """
        found = self.feed.newer(0, self.patience)
        self.check()
        alone = AnchorSet.empty(min(self.edge.engine.context, MAX_CANVAS), self.edge.bundle.contract)
        return FillRequest(self.edge.prompt_ids(self.prompt), alone if found is None else found[1])

    def fill(self, options: FillOptions, stats: FillStats) -> Generator[Token | Retract]:
        """Writes at once and refines the answer with every payload that comes. Raises as `request` does."""
        yield from fill_refined(
            self.edge.engine,
            self.edge.prompt_ids(self.prompt),
            self.feed,
            self.edge.bundle.contract,
            options,
            stats,
            patience=self.patience,
        )
        self.check()

    @property
    def anchors(self) -> int:
        """How many the last payload has."""
        found = self.feed.newer(0, 0.0)
        return 0 if found is None else len(found[1])

    @property
    def patience(self) -> float:
        return self.cloud.timeout + PATIENCE

    def check(self) -> None:
        """Notes where nothing has come and nobody has said why."""
        if not self.sizes and self.trouble is None:
            self._give_up(f"{self.cloud.url}: it did not answer in time")

    def _bring(self) -> None:
        try:
            self._take(self._sent())
        except CloudUnavailableError as error:
            try:
                self._give_up(str(error))
            except CloudUnavailableError as error:
                self.feed.close(error)
            else:
                self.feed.close()
        except BaseException as error:  # whatever it is, the reader has to hear of it
            self.feed.close(error)
        else:
            self.feed.close()

    def _sent(self) -> Iterable[Sent]:
        contract = self.edge.bundle.contract.identity
        if self.wish.stream:
            fractions = list(self.wish.fractions) or None
            return self.cloud.stream(self.prompt, fractions=fractions, contract=contract)
        fraction = self.wish.fractions[0] if self.wish.fractions else None
        return [Sent(self.cloud.fetch(self.prompt, fraction=fraction, contract=contract), delta=False)]

    def _take(self, payloads: Iterable[Sent]) -> None:
        ids = self.edge.prompt_ids(self.prompt)
        bundle = self.edge.bundle
        base: Base | None = None
        for sent in payloads:
            shared = Shared(bundle.contract, ids, bundle.tokenizer, base if sent.delta else None)
            anchors = decode(sent.data, shared)
            base = Base(sent.data, anchors)
            self.sizes.append(len(sent.data))
            self.feed.put(anchors)

    def _give_up(self, trouble: str) -> None:
        """Notes why there is nothing, or nothing more; raises CloudUnavailableError without a fallback."""
        if not self.wish.fallback and not self.sizes:
            raise CloudUnavailableError(trouble)
        self.trouble = trouble


def choose_bundle(cloud: Client, model: str | None) -> Path:
    """The bundle to use before there is a payload: the one named, the only one, or the one that fits the
    service.

    Raises what `lookup.find_bundles` does.
    """
    found = find_bundles("", model)
    if len(found) == 1:
        return found[0]
    try:
        identity = replace(cloud, timeout=min(LOOK_UP, cloud.timeout), attempts=1).identity()
    except CloudUnavailableError:
        return found[0]  # asked again, it will be unreachable again, and that is then said
    return find_bundles(identity, model)[0]
