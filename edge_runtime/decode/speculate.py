"""Speculative decoding: drafts of gap tokens by prompt lookup, and the draft length that pays.

Responsible for finding what followed the last tokens earlier in the text, and for weighing the passes that a
draft may save against its cost, whoever makes it. Not responsible for verification (see `acceptance` for the
rule, `forced` for the passes).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from edge_runtime.decode.acceptance import Draft
from edge_runtime.engine.base import Engine

LONGEST, SHORTEST = 4, 2
"""Lengths of the suffixes that are looked up, the longest first."""

PRIOR_TRIED, PRIOR_RIGHT = 4.0, 2.0
"""Prior of the acceptance rate: one half, with the weight of four drafted tokens."""

COST_SIZES = (1, 2, 3, 5, 9)
"""Numbers of tokens whose passes are timed."""

MEMORY = 0.98
"""Share of the evidence kept from pass to pass, since the rate changes along a text."""


class Drafter(Protocol):
    """Drafts tokens, and observes which of them were accepted."""

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int] | Draft:
        """Returns at most `wanted` ids that may follow the prompt and answer so far; possibly none.

        A drafter that draws its tokens returns a `Draft`, with the distributions that they are from: where
        the target samples, acceptance needs them.
        """

    def observe(self, right: bool) -> None:
        """One drafted token was verified. Not called for tokens after a wrong one."""


def lookup(text: Sequence[int], wanted: int, longest: int = LONGEST, shortest: int = SHORTEST) -> list[int]:
    """The tokens after the latest earlier occurrence of the text's longest suffix that has one."""
    packed = array("q", text)
    data, width = packed.tobytes(), packed.itemsize
    for size in range(min(longest, len(packed) - 1), shortest - 1, -1):
        ending = data[-size * width :]
        at = data.rfind(ending, 0, -width)
        while at % width and at >= 0:
            at = data.rfind(ending, 0, at + len(ending) - 1)
        if at >= 0:
            # Beyond the end of the text the draft repeats itself: a loop is assumed to continue.
            start = at // width + size
            return [packed[start + i % (len(packed) - start)] for i in range(wanted)]
    return []


class Speculator:
    """Drafts of the length that pays on this machine for this text; by prompt lookup, or from `source`.

    costs: seconds of a pass by its number of tokens, from `chunk_costs`. A draft of k tokens at an acceptance
           rate r yields 1 + r + ... + r^k tokens at the cost of a pass of 1 + k and of the draft itself; k is
           chosen for the most tokens per second, and is 0 where no draft pays.
    source: another drafter; its drafts take `seconds` each, whatever their length.
    """

    def __init__(
        self, costs: Mapping[int, float], source: Drafter | None = None, seconds: float = 0.0
    ) -> None:
        sizes = sorted(costs)
        # By drafted tokens; a longer pass is taken to cost as much as the longest that was timed.
        passes = np.interp(range(1, sizes[-1] + 1), sizes, [costs[size] for size in sizes])
        self._costs = [float(cost) + bool(drafted) * seconds for drafted, cost in enumerate(passes)]
        self._source = source
        self._tried, self._right = PRIOR_TRIED, PRIOR_RIGHT

    @property
    def rate(self) -> float:
        """Estimated acceptance rate of drafted tokens."""
        return self._right / self._tried

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int] | Draft:
        self._tried = PRIOR_TRIED + (self._tried - PRIOR_TRIED) * MEMORY
        self._right = PRIOR_RIGHT + (self._right - PRIOR_RIGHT) * MEMORY
        size = self.size(wanted)
        if not size:
            return ()
        return lookup(text, size) if self._source is None else self._source.draft(text, size)

    def observe(self, right: bool) -> None:
        self._tried += 1
        self._right += right

    def size(self, most: int) -> int:
        """The draft length with the most tokens per second, at most `most`."""
        chosen, fastest, yielded, rate = 0, 0.0, 0.0, self.rate
        for drafted in range(most + 1):
            yielded += rate**drafted
            speed = yielded / self._costs[min(drafted, len(self._costs) - 1)]
            if speed > fastest:
                chosen, fastest = drafted, speed
        return chosen


def chunk_costs(
    engine: Engine, sizes: Sequence[int] = COST_SIZES, depth: int = 64, budget: float = 1.0
) -> dict[int, float]:
    """Measures seconds of a pass by its number of tokens, each with its logits, after `depth` others.

    Returns the minimum of the repetitions, after about `budget` seconds. Clears the engine's cache.
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
