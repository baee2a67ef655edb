"""The interface of a link: frames out, frames in, how large one may be, what one costs.

Responsible for the interface, for the bounds of a frame, and for counting what crossed the link. Not
responsible for what is in a frame (see `links.frames`), for repeating what is lost, or for any one kind of
link (see the modules beside this one).

A frame arrives whole or not at all; it may arrive late, twice, or after one that was sent later. The
service's end of a link serves many peers, so that what it receives has an address, and what it sends needs
one; the device's end has one peer, whose address it need not name.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import NamedTuple, Self

from edge_runtime.errors import LinkError
from links.duty import DutyMeter
from links.profiles import FrameCost, LinkProfile

log = logging.getLogger("links")


class Datagram(NamedTuple):
    """A frame that has arrived, and on the service's end its sender's address in the link's own spelling."""

    data: bytes
    peer: str | None


@dataclass
class Traffic:
    """What crossed one end of a link in one direction, as the link's profile counts it."""

    frames: int = 0
    bytes: int = 0
    airtime: float = 0.0
    money: float = 0.0

    def add(self, size: int, cost: FrameCost) -> None:
        self.frames += 1
        self.bytes += size
        self.airtime += cost.airtime
        self.money += cost.money

    def since(self, before: Traffic) -> Traffic:
        """What has come on top of what was counted before."""
        return Traffic(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


class Link(ABC):
    """One end of a link; a context manager that closes it.

    profile: what kind of link it is: largest frames, duties, tariff.
    clock:   the time in seconds that the link lives in, which may be an emulated one; it never goes back.
    service: True for the end of the service's side.
    authenticated: whether whoever receives a frame knows that its sender is the other side, or one of its
             devices. forgeable: whether anyone can send a frame that states another's address.
    cookie:  the last one with which the other side asked for proof of this end's address; b"" for none.
    oversized: bytes of the largest frame that was dropped because the profile has none so large.
    sent, received: what crossed this end so far.
    """

    authenticated = False
    forgeable = False

    def __init__(
        self, profile: LinkProfile, *, clock: Callable[[], float] = time.monotonic, service: bool = False
    ) -> None:
        self.profile, self.clock, self.service = profile, clock, service
        self.sent, self.received = Traffic(), Traffic()
        self.cookie = b""
        self._oversized = 0
        self._meter = DutyMeter(d for d in profile.duties if d.down is None or d.down == service)

    @property
    def oversized(self) -> int:
        return self._oversized

    @property
    def largest(self) -> int:
        """Most bytes of a frame that `send` takes."""
        return self.profile.down if self.service else self.profile.up

    @property
    def largest_received(self) -> int:
        """Most bytes of a frame from the other side: the room of an answer."""
        return self.profile.up if self.service else self.profile.down

    def sender(self, peer: str | None) -> str | None:
        """Who is at a peer's address, where one sender may have many."""
        return peer

    def in_text(self, peer: str | None) -> bool:
        """Whether what a peer sends, and wants to be sent, are no frames but messages in plain text."""
        return False

    def cost(self, size: int) -> FrameCost:
        """What a frame of so many bytes costs."""
        return self.profile.cost(size)

    def pause(self, size: int, peer: str | None = None) -> float:
        """Seconds until the duties let a frame of so many bytes leave; 0.0 where it may leave at once.

        `send` does not wait: a radio keeps or refuses a frame that comes too early.
        """
        now = self.clock()
        return self._meter.earliest(now, self.cost(size).airtime, peer) - now

    def send(self, frame: bytes, peer: str | None = None) -> None:
        """Hand a frame to the link; that it arrives is not known.

        peer: where to, as a received datagram named it; on the device's end None stands for the one peer.

        Raises LinkError where the frame is empty or larger than `largest`, where an address is missing or
        not one of this link, or where the link has failed or is closed.
        """
        if not 1 <= len(frame) <= self.largest:
            raise LinkError(
                f"{self.profile.name}: expected a frame of 1 to {self.largest} bytes, found {len(frame)}; "
                "ask for a smaller one"
            )
        if self.service and peer is None:
            raise LinkError(f"{self.profile.name}: expected a peer's address for a frame of the service")
        self._transmit(bytes(frame), peer)
        cost = self.cost(len(frame))
        self.sent.add(len(frame), cost)
        self._spend(cost.airtime, peer)

    def receive(self, timeout: float) -> Datagram | None:
        """The next frame, or None where none has arrived within so many seconds; 0 asks without waiting.

        What is empty or larger than the profile's frames is dropped. Raises LinkError where the link
        has failed or is closed.
        """
        deadline = self.clock() + timeout
        while True:
            found = self._next(max(0.0, deadline - self.clock()))
            if found is None:
                return None
            if 1 <= len(found.data) <= self.largest_received:
                self.received.add(len(found.data), self.cost(len(found.data)))
                return found
            if len(found.data) > self._oversized:
                self._oversized = len(found.data)
                log.warning(
                    "a frame of %d bytes%s is dropped: expected at most %d on profile %s; give both ends the "
                    "same",
                    len(found.data),
                    "" if found.peer is None else f" from {found.peer}",
                    self.largest_received,
                    self.profile.name,
                )

    def _spend(self, airtime: float, peer: str | None) -> None:
        """Count a frame against the duties."""
        self._meter.record(self.clock(), airtime, peer)

    @abstractmethod
    def _transmit(self, frame: bytes, peer: str | None) -> None:
        """`send` for a frame whose size is right."""

    @abstractmethod
    def _next(self, timeout: float) -> Datagram | None:
        """`receive` for a frame of any size; timeout at least 0."""

    @abstractmethod
    def close(self) -> None:
        """Let the link go; nothing happens the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
