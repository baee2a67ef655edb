"""An exchange over a link, the device's side: a question until it is answered, and the chain of its answer.

Responsible for repeating a question within its budget, for which frames belong to it, and for the order of an
answer's parts. Not responsible for the bytes of frames (see `links.frames`), for the models that read them
(a function is given) or for threads.

Time is the link's clock, so that an emulated exchange takes as long as its computations.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from links.datagram import Link
from links.frames.cookie import Challenge, with_cookie
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, decode_reply
from payload import AnchorSet, Base
from payload.errors import FingerprintError, PayloadError

log = logging.getLogger("links")

PayloadReader = Callable[[bytes, Base | None], AnchorSet]
"""The anchors of a payload that adds to a base, or with None stands alone; raises PayloadError."""

MAX_CANDIDATES = 2
"""Frames that are kept for a part whose turn has not come: without a seal anyone may send one."""

MAX_CHALLENGES = 3
"""Cookies of one exchange: without a seal anyone may ask for proof of this device's address."""

JITTER = 0.25
"""Share of a pause that is random, so that devices that lost frames together do not meet again."""

LEAST_WAIT = 1e-3
"""Seconds; shorter ones may be lost in a clock's rounding."""

STOP_SECONDS = 0.5
"""Longest wait of an exchange that can be stopped."""


@dataclass(frozen=True)
class RetryBudget:
    """How often and how long a device asks.

    attempts: frames of one question, at most; on a link where every frame to the device has to be asked for,
              those without a new part in between.
    airtime:  seconds on the air of all of them; None for any.
    seconds:  after which it gives up; None for never before the last attempt's pause.
    service:  seconds that the service is expected to take. growth: of the pauses, each to the next.
    """

    attempts: int = 5
    airtime: float | None = None
    seconds: float | None = None
    service: float = 5.0
    growth: float = 1.6

    def less(self, airtime: float, seconds: float) -> RetryBudget:
        """What is left once so much is used."""
        return replace(
            self,
            airtime=None if self.airtime is None else self.airtime - airtime,
            seconds=None if self.seconds is None else self.seconds - seconds,
        )


class QuestionExchange:
    """One question on a link.

    frame:     of the question; every repeat is the same bytes. id: its request id.
    accepted:  sizes of the payloads taken, in order. complete: whether the last of the chain is among them.
    refusal:   the other side's, where it ended the exchange: on a link without authentication no sooner than
               an answer could have come.
    oversized: bytes of a frame that this end's profile does not have, where that ended the exchange.
    strange:   True where the chain could not be read with this device's model: ask for codec compact.
    stopped:   tells whether nobody waits for the answer any more; None for an exchange that nobody leaves.
    ignored:   frames of others, damaged or of no use. repeated: frames that came again.
    """

    def __init__(
        self,
        link: Link,
        frame: bytes,
        id: int,
        read: PayloadReader,
        budget: RetryBudget | None = None,
        rng: random.Random | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        self.stopped = stopped
        self.link, self.frame, self.id = link, frame, id
        self.budget = budget or RetryBudget()
        self.attempts = self.ignored = self.repeated = 0
        self.accepted: list[int] = []
        self.complete = self.strange = False
        self.refusal: Refusal | None = None
        self.oversized = 0
        self.airtime = 0.0
        self._read = read
        self._rng = rng or random.Random()
        self._base: Base | None = None
        self._taken: list[bytes] = []
        self._early: dict[int, list[AnswerFrame]] = {}
        self._unread: dict[bytes, int] = {}  # payloads that this device's model could not read, and how often
        self._due = self._began = link.clock()
        self._pause = self.first_pause
        self._patience: float | None = None  # when the first pause ends
        self._doubted: Refusal | None = None  # nobody has authenticated it
        self._larger = link.oversized
        self._challenges = 0
        self._since_part = 0

    @property
    def first_pause(self) -> float:
        """Seconds until an answer may be missed: the slowest way there and back, and the service."""
        profile = self.link.profile
        there = self.link.cost(len(self.frame)).airtime + profile.delay[1]
        back = self.link.cost(self.link.largest_received).airtime + profile.delay[1] + (profile.window or 0.0)
        return there + self.budget.service + back

    def anchors(self) -> Iterator[AnchorSet]:
        """Ask, and yield the anchors so far with every part that comes, until the chain is complete, the
        other side refuses, or the budget is used up. Raises LinkError.
        """
        clock, end = self.link.clock, self._end
        while not self._over and (end is None or clock() < end):
            if self.stopped is not None and self.stopped():
                return
            if clock() >= self._due:
                if not self._may_ask():
                    return
                wait = self.link.pause(len(self._sent_frame))
                if wait > 0:
                    self._due = clock() + max(wait, LEAST_WAIT)
                else:
                    self._ask()
                continue
            times = [self._due, end, self._patience if self._doubted else None]
            wait = min(time for time in times if time is not None) - clock()
            found = self.link.receive(wait if self.stopped is None else min(wait, STOP_SECONDS))
            if found is not None:
                before = len(self._taken)
                yield from self._take(found.data)
                if len(self._taken) > before:
                    self._since_part = 0
                    # What is missing is on its way, or on such a link waits for the next question.
                    self._pause = self.first_pause
                    self._due = clock() + (0.0 if self.link.profile.window is not None else self._pause)
            self._lose_patience()

    @property
    def seconds(self) -> float:
        """Since the exchange began."""
        return self.link.clock() - self._began

    @property
    def _end(self) -> float | None:
        return None if self.budget.seconds is None else self._began + self.budget.seconds

    @property
    def _over(self) -> bool:
        return self.complete or self.refusal is not None or self.strange or self.oversized > 0

    @property
    def _sent_frame(self) -> bytes:
        """The question as it is sent: behind a cookie where the other side has asked for one."""
        return with_cookie(self.frame, self.link.cookie)

    def _may_ask(self) -> bool:
        cost = self.link.cost(len(self._sent_frame)).airtime
        most = self.budget.airtime
        return self._since_part < self.budget.attempts and (most is None or self.airtime + cost <= most)

    def _ask(self) -> None:
        frame = self._sent_frame
        self.link.send(frame)
        self.attempts += 1
        log.info("question of %d bytes sent (%d)", len(frame), self.attempts)
        self._since_part += 1
        self.airtime += self.link.cost(len(frame)).airtime
        self._due = self.link.clock() + self._pause * self._rng.uniform(1 - JITTER, 1 + JITTER)
        self._patience = self._patience or self._due
        self._pause *= self.budget.growth

    def _lose_patience(self) -> None:
        """Once an answer should have come, take what says that none will."""
        if self._patience is None or self.link.clock() < self._patience or self._taken:
            return
        self.refusal = self._doubted
        if self.link.oversized > self._larger:
            self.oversized = self.link.oversized

    def _take(self, data: bytes) -> Iterator[AnchorSet]:
        """The anchors after each part for which a frame is what was missing."""
        try:
            reply = decode_reply(data)
        except PayloadError:
            self.ignored += 1
            return
        if reply.id != self.id:
            self.ignored += 1
        elif isinstance(reply, Refusal):
            self._refused(reply)
        elif isinstance(reply, Challenge):
            self._challenged(reply)
        elif reply.part < len(self._taken):
            same = self._taken[reply.part] == reply.payload
            self.repeated, self.ignored = self.repeated + same, self.ignored + (not same)
        else:
            waiting = self._early.setdefault(reply.part, [])
            if reply in waiting:
                self.repeated += 1
            elif len(waiting) < MAX_CANDIDATES:
                waiting.append(reply)
            else:
                self.ignored += 1
            while not self.complete and (anchors := self._next()) is not None:
                yield anchors

    def _next(self) -> AnchorSet | None:
        """The anchors with the part whose turn it is; None where it has not come, or cannot be used."""
        for answer in self._early.pop(len(self._taken), []):
            try:
                anchors = self._read(answer.payload, self._base)
            except PayloadError as error:
                self.ignored += 1
                if isinstance(error, FingerprintError):  # damaged, or other predictions: asked again
                    times = self._unread[answer.payload] = self._unread.get(answer.payload, 0) + 1
                    self.strange = times > 1
                continue
            self._base = Base(answer.payload, anchors)
            self._taken.append(answer.payload)
            self.accepted.append(len(answer.payload))
            self.complete = answer.last
            return anchors
        return None

    def _refused(self, refusal: Refusal) -> None:
        if self._taken:  # an answer has begun: not from the side that answers
            self.ignored += 1
        elif refusal.code is RefusalCode.OVERLOADED and refusal.retry_after is not None:
            wait = refusal.retry_after * self._rng.uniform(1.0, 1 + JITTER)
            # Never so long that the budget ends before the question is asked again and answered.
            wait = min(wait, self._time_left - self.first_pause)
            self._due = max(self._due, self.link.clock() + wait)
        elif self.link.authenticated:
            self.refusal = refusal
        else:
            self._doubted = refusal

    @property
    def _time_left(self) -> float:
        """Seconds of the budget; where it has none, of the pauses after the attempts that are left."""
        if self._end is not None:
            return self._end - self.link.clock()
        left = self.budget.attempts - self._since_part
        return self._pause * sum(self.budget.growth**number for number in range(left + 1))

    def _challenged(self, challenge: Challenge) -> None:
        """Send the question again with the cookie at once; that is no attempt."""
        if self._taken or challenge.cookie == self.link.cookie or self._challenges >= MAX_CHALLENGES:
            self.ignored += 1
            return
        self._challenges += 1
        self.link.cookie = challenge.cookie
        if len(self._sent_frame) > self.link.largest:
            self.refusal = Refusal(self.id, RefusalCode.TOO_LONG)
            return
        self.attempts, self._since_part = self.attempts - 1, self._since_part - 1
        self._due, self._pause, self._patience = self.link.clock(), self.first_pause, None
