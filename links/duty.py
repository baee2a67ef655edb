"""Duty cycles and quotas: how much a sender may send in any window of time.

Responsible for counting what was sent and for the earliest time at which more may be. Not responsible for
waiting, and not for the figures of a band or a network (see `profiles`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Duty:
    """At most so much in any window of `period` seconds.

    airtime: seconds on the air; None for any. frames: number of them; None for any.
    down:    False: of a device's frames; True: of the frames to each device by itself, as a network grants
             them; None: of all the frames of any sender.
    """

    period: float
    airtime: float | None = None
    frames: int | None = None
    down: bool | None = None

    def __str__(self) -> str:
        period = {HOUR: "an hour", DAY: "a day"}.get(self.period, f"in {self.period:g} s")
        what = [] if self.airtime is None else [f"{self.airtime:g} s on the air"]
        what += [] if self.frames is None else [f"{self.frames} frames"]
        to = {True: " to the device", False: " from the device", None: ""}[self.down]
        return f"{' and '.join(what)} {period}{to}"


class DutyMeter:
    """What one sender has sent, against its duties."""

    def __init__(self, duties: Iterable[Duty]) -> None:
        self._duties = tuple(duties)
        self._longest = max((duty.period for duty in self._duties), default=0.0)
        self._sent: deque[tuple[float, float, str | None]] = deque()  # (begin, airtime, peer), oldest first

    def record(self, when: float, airtime: float, peer: str | None = None) -> None:
        """A frame that began at this time, no earlier than any before it."""
        if not self._duties:
            return
        self._sent.append((when, airtime, peer))
        while self._sent and self._sent[0][0] + self._longest <= when:
            self._sent.popleft()

    def earliest(self, now: float, airtime: float, peer: str | None = None) -> float:
        """The first time from `now` on at which a frame of so much airtime may begin.

        A frame that alone takes more than a duty's airtime may begin when the window is empty.
        """
        return max((self._after(duty, now, airtime, peer) for duty in self._duties), default=now)

    def _after(self, duty: Duty, now: float, airtime: float, peer: str | None) -> float:
        window = [
            (when, spent)
            for when, spent, to in self._sent
            if when + duty.period > now and (to == peer or not duty.down)
        ]
        total = sum(spent for _, spent in window)
        start = now
        # The oldest leaves the window first; each that leaves gives its share back.
        for index, (when, spent) in enumerate(window):
            many = duty.frames is not None and len(window) - index >= duty.frames
            much = duty.airtime is not None and total + airtime > duty.airtime * (1 + 1e-9)
            if not many and not much:
                break
            start, total = when + duty.period, total - spent
        return start
