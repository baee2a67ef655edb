"""A virtual clock: events in order of their time, so that an hour of a network takes milliseconds.

Responsible for time. Not responsible for what happens (see `emulated`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class EventClock:
    """Events by time, those of one time in the order in which they were set. now: seconds from the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Call `event` this many seconds from now, 0 or more."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, until: float) -> None:
        """Run the events up to this time; the clock then stands at the last of them."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Run events until `done`, at most for so many seconds, which then have passed; returns `done()`."""
        until = self.now + seconds
        while not done():
            if not self._events or self._events[0][0] > until:
                self.now = max(self.now, until)
                return done()
            when, _, event = heapq.heappop(self._events)
            self.now = max(self.now, when)
            event()
        return True
