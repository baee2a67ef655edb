"""Timing of engines: single passes and whole answers.

Responsible for tests that run on any engine, timed in turn so that their figures can be compared. Not
responsible for output (see the command).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.base import Engine
from payload import AnchorSet, Contract

DECODED = 16
"""Number of tokens per repetition of decoding."""
REST = 0.1
"""Seconds before each repetition: threads of some peers spin for about 50 ms after a pass."""
DEPTHS = (0, 128, 512)
COVERAGES = (0.0, 0.1, 0.25, 0.5)
CHUNK, PROMPT = 64, 100


class Trial(NamedTuple):
    """One test: times `run`, which is about so many tokens, after `prepare`."""

    engine: str
    name: str
    tokens: int
    prepare: Callable[[], object]
    run: Callable[[], object]


def repetitions(
    tests: Sequence[Trial], repeat: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of each repetition of each test, by `clock`.

    Tests run in turn, one repetition of each at a time, so that other load on the device affects all of them
    alike. The first repetition is not counted.
    """
    seconds: list[list[float]] = [[] for _ in tests]
    for _ in range(repeat + 1):
        for test, kept in zip(tests, seconds, strict=True):
            test.prepare()
            time.sleep(REST)
            before = clock()
            test.run()
            kept.append(clock() - before)
    return [kept for _, *kept in seconds]


class Bench:
    """The tests of one engine. Every repetition starts from the same cache."""

    def __init__(self, name: str, engine: Engine, contract: Contract) -> None:
        self.name, self.engine, self.contract = name, engine, contract
        random = np.random.default_rng(0)
        self.ids = [int(i) for i in random.integers(0, contract.vocab_size, engine.context)]

    def _at(self, depth: int) -> Callable[[], None]:
        """Sets the cache to the first `depth` ids."""

        def prepare() -> None:
            self.engine.rewind(min(depth, self.engine.length))
            if self.engine.length < depth:
                self.engine.append(self.ids[self.engine.length : depth])

        return prepare

    def prefill(self, size: int) -> Trial:
        """A prompt of `size` tokens in one pass, logits for the last."""
        run = partial(self.engine.append, self.ids[:size], [size - 1])
        return Trial(self.name, f"prefill {size}", size, partial(self.engine.rewind, 0), run)

    def decode(self, depth: int, count: int = DECODED) -> Trial:
        """`count` tokens one by one after `depth` others, each chosen by argmax."""

        def run() -> None:
            token = self.ids[depth]
            for _ in range(count):
                token = int(self.engine.append([token], [0])[0].argmax())

        return Trial(self.name, f"decode at {depth}", count, self._at(depth), run)

    def chunk(self, size: int, depth: int, *, scored: bool) -> Trial:
        """A pass of `size` known tokens, with the logits of each or of the last only."""
        rows = range(size) if scored else [size - 1]
        ids = self.ids[depth : depth + size]
        label = f"chunk {size}{', scored' if scored else ''}"
        return Trial(self.name, label, size, self._at(depth), partial(self.engine.append, ids, rows))

    def fill(self, coverage: float, length: int) -> Trial:
        """An answer of `length` tokens after a prompt from an empty cache, so many of them anchored."""
        random = np.random.default_rng(1)
        places = [int(p) for p in random.permutation(length)[: round(coverage * length)]]
        anchors = AnchorSet.of({p: self.ids[-1 - p] for p in places}, length, self.contract, length)

        def run() -> None:
            for _ in fill(self.engine, self.ids[:PROMPT], anchors, FillOptions(score_anchors=False)):
                pass

        return Trial(self.name, f"fill at {coverage:.0%}", length, partial(self.engine.rewind, 0), run)

    def trials(self, length: int) -> Iterator[Trial]:
        """The tests that fit the engine's context; length: of answers."""
        context = self.engine.context
        for size in (64, 256):
            if size < context:
                yield self.prefill(size)
        for depth in DEPTHS:
            if depth + DECODED < context:
                yield self.decode(depth)
        for scored in (False, True):
            if context > 2 * CHUNK:
                yield self.chunk(CHUNK, CHUNK, scored=scored)
        for coverage in COVERAGES:
            if PROMPT + length < context:
                yield self.fill(coverage, length)
