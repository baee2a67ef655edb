"""What strangers may cost a gateway: token buckets, and frames that are known to be unreadable.

Responsible for counting. Not responsible for what is counted, nor for money (see `quota`). Time is given, so
that an emulated link's is as good as the machine's.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass

from links.frames import RefusalCode

MAX_KEPT = 1024
"""Peers, or frames, that are remembered: the latest."""


@dataclass(frozen=True)
class Rate:
    """So much a second in the long run, and so much at once."""

    a_second: float
    at_once: float


class TokenBucket:
    """What is left of a rate; full at first."""

    def __init__(self, rate: Rate) -> None:
        self._rate, self._level, self._when = rate, 0.0, -math.inf

    def has(self, amount: float, now: float) -> bool:
        """Whether so much may be taken; an amount beyond what the bucket holds needs a full one."""
        self._level = min(self._rate.at_once, self._level + (now - self._when) * self._rate.a_second)
        self._when = now
        return self._level >= min(amount, self._rate.at_once)

    def take(self, amount: float) -> None:
        self._level -= amount


class Allowance:
    """A rate of each peer by itself, and one of all of them together."""

    def __init__(self, of_peer: Rate, of_all: Rate | None = None) -> None:
        self._of_peer = of_peer
        self._of_all = [] if of_all is None else [TokenBucket(of_all)]
        self._peers: OrderedDict[str | None, TokenBucket] = OrderedDict()

    def take(self, peer: str | None, amount: float, now: float) -> bool:
        """Take so much for a peer; False, with nothing taken, where its rate or that of all is used up."""
        buckets = [self._peers.get(peer) or TokenBucket(self._of_peer), *self._of_all]
        self._peers[peer] = buckets[0]
        self._peers.move_to_end(peer)
        if len(self._peers) > MAX_KEPT:
            self._peers.popitem(last=False)
        if not all(bucket.has(amount, now) for bucket in buckets):
            return False
        for bucket in buckets:
            bucket.take(amount)
        return True


class FailedFrames:
    """Frames that could not be read, and why: they are not read again."""

    def __init__(self) -> None:
        self._codes: OrderedDict[bytes, RefusalCode] = OrderedDict()

    def add(self, frame: bytes, code: RefusalCode) -> None:
        self._codes[_digest(frame)] = code
        if len(self._codes) > MAX_KEPT:
            self._codes.popitem(last=False)

    def why(self, frame: bytes) -> RefusalCode | None:
        """None for a frame that is not known."""
        return self._codes.get(_digest(frame))


def _digest(frame: bytes) -> bytes:
    return hashlib.sha256(frame).digest()
