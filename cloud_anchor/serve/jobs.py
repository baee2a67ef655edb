"""A request on its way through the engine, what becomes of it, and how fast that goes.

Knows plain values. Does not know threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud_anchor.pipeline import Selection
from cloud_anchor.sampling.sampler import DenoiseConfig
from cloud_anchor.serve.errors import ServiceError
from payload import Base

MEMORY = 5.0
"""Seconds in which the measured rate forgets half."""


@dataclass(frozen=True)
class Ready:
    """A payload, and where it stands. delta: it adds to the payload before it. last: no more will come."""

    data: bytes
    anchors: int
    length: int | None
    step: int
    total_steps: int
    canvas: int
    delta: bool
    last: bool


Event = Ready | ServiceError


@dataclass(eq=False)
class Job:
    """One request on its way.

    marks:    steps after which a payload is made, ascending.
    deadline: time.monotonic() by which its last payload has to be there. allowed: the same as a duration.
    deliver:  called from a thread of the engine; the last call brings a Ready that is `last`, or an error.
    whole:    no payload adds to the one before it.
    gone:     set where nobody waits for it any more.
    """

    prompt_ids: tuple[int, ...]
    config: DenoiseConfig
    marks: tuple[int, ...]
    selection: Selection
    allowed: float
    deliver: Callable[[Event], None]
    whole: bool = False
    gone: bool = False
    base: Base | None = None
    steps_left: int = field(init=False)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.steps_left = self.marks[-1]
        self.deadline = time.monotonic() + self.allowed


@dataclass(frozen=True)
class Load:
    """What the engine is doing now. rate: steps of single answers a second, None before the first."""

    waiting: int
    running: int
    choosing: int
    steps_left: int
    rate: float | None


class Rate:
    """Work a second, over the last seconds in which there was any."""

    def __init__(self) -> None:
        self._work = self._seconds = 0.0

    def add(self, work: float, seconds: float) -> None:
        keep = 0.5 ** (seconds / MEMORY)
        self._work = self._work * keep + work
        self._seconds = self._seconds * keep + seconds

    @property
    def value(self) -> float | None:
        return self._work / self._seconds if self._seconds else None
