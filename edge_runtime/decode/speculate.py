"""Guessing gap tokens from what has been written, and when a guess is worth its cost.

Knows how to look up what followed the last tokens before, and how to weigh the passes a guess may save
against what it adds to one. Does not verify guesses: forced decoding does, and takes only what is right.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from edge_runtime.engine.base import Engine

LONGEST, SHORTEST = 4, 2
"""Lengths of the endings that are looked up, the longest first."""

PRIOR_TRIED, PRIOR_RIGHT = 4.0, 2.0
"""What is believed before anything is known: half of the guesses are right, as if four had been tried."""

MEMORY = 0.98
"""Share of the evidence kept from pass to pass: text changes, and who was wrong gets new chances."""


class Drafter(Protocol):
    """Guesses tokens, and is told which guesses were right."""

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
        """At most `wanted` ids that may follow the prompt and answer so far; none where it has no idea."""

    def observe(self, right: bool) -> None:
        """One guessed token was verified. What follows a wrong one is not told."""


def lookup(text: Sequence[int], wanted: int, longest: int = LONGEST, shortest: int = SHORTEST) -> list[int]:
    """What followed the text's last tokens where they stood before: the longest ending, its latest place."""
    packed = array("q", text)
    data, width = packed.tobytes(), packed.itemsize
    for size in range(min(longest, len(packed) - 1), shortest - 1, -1):
        ending = data[-size * width :]
        at = data.rfind(ending, 0, -width)
        while at % width and at >= 0:
            at = data.rfind(ending, 0, at + len(ending) - 1)
        if at >= 0:
            # Where the text ends the guess goes on with itself: what repeats is taken to go on repeating.
            start = at // width + size
            return [packed[start + i % (len(packed) - start)] for i in range(wanted)]
    return []


class Speculator:
    """Looks guesses up, and makes as many as pay on this machine for text like this.

    costs: seconds of a pass by its number of tokens, from `chunk_costs`. A guess of k tokens at a rate r of
    right ones yields 1 + r + ... + r^k tokens at the cost of a pass of 1 + k; k is chosen for the most tokens
    a second, and is 0 where none pays.
    """

    def __init__(self, costs: Mapping[int, float]) -> None:
        self._sizes = sorted(costs)
        self._costs = [costs[size] for size in self._sizes]
        self._tried, self._right = PRIOR_TRIED, PRIOR_RIGHT

    @property
    def rate(self) -> float:
        """Estimated share of guesses that are right."""
        return self._right / self._tried

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
        self._tried = PRIOR_TRIED + (self._tried - PRIOR_TRIED) * MEMORY
        self._right = PRIOR_RIGHT + (self._right - PRIOR_RIGHT) * MEMORY
        size = self.size(wanted)
        return lookup(text, size) if size else ()

    def observe(self, right: bool) -> None:
        self._tried += 1
        self._right += right

    def size(self, most: int) -> int:
        """The number of guesses that gives the most tokens a second."""
        speeds, yielded = [], 0.0
        for guesses in range(most + 1):
            yielded += self.rate**guesses
            speeds.append(yielded / float(np.interp(1 + guesses, self._sizes, self._costs)))
        return int(np.argmax(speeds))


def chunk_costs(
    engine: Engine, sizes: Sequence[int] = (1, 2, 3, 5, 9), depth: int = 64, budget: float = 1.0
) -> dict[int, float]:
    """Seconds of a pass by its number of tokens, each with its logits, after `depth` others: the least seen.

    Takes about `budget` seconds. What the engine held is forgotten.
    """
    depth = max(1, min(depth, engine.context - max(sizes)))
    engine.rewind(0)
    engine.append([0] * depth)
    costs = dict.fromkeys(sizes, float("inf"))
    started = time.perf_counter()
    rounds = 0
    while rounds < 3 or time.perf_counter() - started < budget:
        for size in sizes:
            before = time.perf_counter()
            engine.append([0] * size, range(size))
            costs[size] = min(costs[size], time.perf_counter() - before)
            engine.rewind(depth)
        rounds += 1
    engine.rewind(0)
    return costs
