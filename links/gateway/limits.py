"""What strangers may cost a gateway: token buckets, unreadable frames, and cookies of addresses.

Responsible for counting, and for cookies that are known again without being kept. Not responsible for what is
counted, nor for money (see `quota`) or for the frames of cookies (see `links.frames.cookie`). Time is given,
so that an emulated link's is as good as the machine's.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass

from links.frames.cookie import COOKIE_BYTES
from links.frames.kinds import FrameKind
from links.frames.question import QuestionHead
from links.frames.reply import RefusalCode

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


READING = {
    FrameKind.QUESTION_PREDICTIVE: (Rate(16, 512), Rate(64, 2048)),
    FrameKind.QUESTION_COMPACT: (Rate(256, 4096), Rate(1024, 16384)),
}
"""Bytes of coded text that are read, of a peer and of all of them. A byte takes up to 8 passes of the edge
model, or 0.2 ms without it; people's questions have some 20 of the one or 40 of the other."""


class ReadingLimits:
    """Whose coded texts are read now: `most` at once with the edge model, `most_of_peer` of one peer.

    predictive: whether any are read with the edge model. now: those that are, by peer.
    """

    def __init__(self, most: int, most_of_peer: int, predictive: bool) -> None:
        self._most, self._most_of_peer, self._predictive = most, most_of_peer, predictive
        self._texts = {kind: Allowance(*rates) for kind, rates in READING.items()}
        self.now: Counter[str | None] = Counter()

    def refuse(
        self, head: QuestionHead, peer: str | None, sender: str | None, now: float
    ) -> RefusalCode | None:
        """Why a text is not read now, though it may be fine."""
        by_model = head.kind is FrameKind.QUESTION_PREDICTIVE
        full = self.now.total() >= self._most or self.now[peer] >= self._most_of_peer
        if by_model and (not self._predictive or full):
            return RefusalCode.OTHER_PREDICTIONS  # the device asks again without them
        allowance = self._texts.get(head.kind)
        if allowance is None or allowance.take(sender, head.body_bytes, now):
            return None
        return RefusalCode.OTHER_PREDICTIONS if by_model else RefusalCode.OVERLOADED

    def begin(self, kind: FrameKind, peer: str | None) -> None:
        self.now[peer] += kind is FrameKind.QUESTION_PREDICTIVE

    def end(self, kind: FrameKind, peer: str | None) -> None:
        if kind is FrameKind.QUESTION_PREDICTIVE:
            one_less(self.now, peer)


def one_less(count: Counter[str | None], peer: str | None) -> None:
    """One less, and nothing kept of a peer with none."""
    count[peer] -= 1
    if not count[peer]:
        del count[peer]


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


LIFE_SECONDS = 3600.0
"""A cookie is good for this long at least, and for twice as long at most."""


class Cookies:
    """Of one process: another one's, or those from before it was started again, are not known."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, peer: str | None, now: float) -> bytes:
        """The cookie of an address."""
        return self._made(peer, int(now // LIFE_SECONDS))

    def shows(self, cookie: bytes, peer: str | None, now: float) -> bool:
        """Whether who sent this cookie has received what was sent to the address."""
        period = int(now // LIFE_SECONDS)
        return any(hmac.compare_digest(cookie, self._made(peer, each)) for each in (period, period - 1))

    def _made(self, peer: str | None, period: int) -> bytes:
        text = f"{period} {peer}".encode()
        return hmac.digest(self._secret, text, hashlib.sha256)[:COOKIE_BYTES]
