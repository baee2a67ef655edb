"""Frames of a gateway that wait for the link: sent no earlier than its duties allow, while there is money.

Responsible for their order, for how long one may wait, and for the quota. Not responsible for what is sent
(see `answering`).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from edge_runtime.errors import LinkError
from links.datagram import Link
from links.quota import Quota

log = logging.getLogger("links.gateway")


class OutgoingFrame(NamedTuple):
    """A frame that waits for the link. since: when it was made. of: what it is a part of."""

    data: bytes
    peer: str | None
    since: float
    of: object


class Outbox:
    """most: frames that wait. seconds: for which one may. quota: of the money of frames; None for any."""

    def __init__(self, link: Link, most: int, seconds: float, quota: Quota | None) -> None:
        self.link, self.most, self.seconds, self.quota = link, most, seconds, quota
        self._waiting: list[OutgoingFrame] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes, peer: str | None, of: object = None) -> None:
        if len(self) >= self.most:
            log.warning("the link is too slow for what is asked: a frame is dropped")
            return
        self._waiting.append(OutgoingFrame(data, peer, self.link.clock(), of))

    def holds(self, of: object) -> bool:
        """Whether a part of this still waits."""
        return any(frame.of is of for frame in self._waiting)

    def affords(self, peer: str | None, size: int) -> bool:
        """Whether the quota has the money of a frame to a peer."""
        money = self.link.cost(size).money
        return self.quota is None or not money or self.quota.allows(self.link.sender(peer), money)

    def flush(self) -> float | None:
        """Sends what the link's duties let go, of each peer in order; seconds until the next one may."""
        held: list[OutgoingFrame] = []
        behind: set[str | None] = set()
        soonest: float | None = None
        now = self.link.clock()
        for frame in self._waiting:
            wait = self.link.pause(len(frame.data), frame.peer)
            if (wait > 0 or frame.peer in behind) and now - frame.since <= self.seconds:
                held.append(frame)
                behind.add(frame.peer)
                soonest = wait if soonest is None else min(soonest, wait)
            elif wait <= 0:  # else too old
                self._send(frame.data, frame.peer)
        self._waiting = held
        return soonest

    def _send(self, data: bytes, peer: str | None) -> None:
        try:
            money = self.link.cost(len(data)).money
            if self.quota is None or not money or self.quota.spend(self.link.sender(peer), money):
                self.link.send(data, peer)
        except LinkError as error:
            log.warning("%s", error)
