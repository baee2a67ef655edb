"""Timing of engines: single passes and whole answers.

Responsible for tests that run on any engine, timed in turn so that their figures can be compared. Not
responsible for output (see `bench`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import Engine
from payload import AnchorSet, Contract

CHUNKS = (1, 2, 4, 8, 16, 32, 64)
DECODED = 16
"""Number of tokens per repetition of decoding."""
REST = 0.1
"""Seconds before each repetition: threads of some baselines spin for about 50 ms after a pass."""
COVERAGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Figure(NamedTuple):
    """One row of a benchmark.

    tokens, passes: of one repetition. seconds, deviation: mean and standard deviation of a repetition.
    """

    engine: str
    test: str
    tokens: int
    passes: int
    seconds: float
    deviation: float


class FillCase(NamedTuple):
    """An answer to be filled: prompt ids and anchors, whose `length` is known."""

    prompt_ids: Sequence[int]
    anchors: AnchorSet


class Trial(NamedTuple):
    """One test: times `run`, after `prepare`.

    tokens: of one repetition. passes: returns those of one repetition, called after the last.
    """

    engine: str
    name: str
    tokens: int
    passes: Callable[[], int]
    prepare: Callable[[], object]
    run: Callable[[], object]


def timed(tests: Sequence[Trial], repeat: int) -> list[Figure]:
    """The means of `repetitions`."""
    return [
        Figure(test.engine, test.name, test.tokens, test.passes(), statistics.fmean(kept), _deviation(kept))
        for test, kept in zip(tests, repetitions(tests, repeat), strict=True)
    ]


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


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


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
        return Trial(self.name, f"prefill {size}", size, lambda: 1, partial(self.engine.rewind, 0), run)

    def start(self, size: int, load: Callable[[], Engine]) -> Trial:
        """A model loaded again and a prompt of `size` tokens run on it, up to the logits of its last."""

        loaded: list[Engine] = []

        def run() -> None:
            loaded.append(load())
            loaded[0].append(self.ids[:size], [size - 1])

        return Trial(self.name, f"start, prefill {size}", size, lambda: 1, loaded.clear, run)

    def decode(self, depth: int, count: int = DECODED) -> Trial:
        """`count` tokens one by one after `depth` others, each chosen by argmax."""

        def run() -> None:
            token = self.ids[depth]
            for _ in range(count):
                token = int(self.engine.append([token], [0])[0].argmax())

        return Trial(self.name, f"decode at {depth}", count, lambda: count, self._at(depth), run)

    def chunk(self, size: int, depth: int, *, scored: bool) -> Trial:
        """A pass of `size` known tokens, with the logits of each or of the last only."""
        rows = range(size) if scored else [size - 1]
        ids = self.ids[depth : depth + size]
        label = f"chunk {size}{', scored' if scored else ''}"
        run = partial(self.engine.append, ids, rows)
        return Trial(self.name, label, size, lambda: 1, self._at(depth), run)

    def fill(self, name: str, cases: Sequence[FillCase], options: FillOptions) -> Trial:
        """Whole answers, the prompts' passes included, from an empty cache."""
        stats = FillStats()

        def run() -> None:
            nonlocal stats
            stats = FillStats()
            for case in cases:
                self.engine.rewind(0)
                for _ in fill(self.engine, case.prompt_ids, case.anchors, options, stats):
                    pass

        return Trial(self.name, name, _tokens(cases), lambda: stats.passes, lambda: None, run)

    def stepwise(self, name: str, cases: Sequence[FillCase]) -> Trial:
        """The same answers decoded as in the paper: one pass for the prompt, one per position."""

        def run() -> None:
            for case in cases:
                self.engine.rewind(0)
                forced = case.anchors.by_position
                logits = self.engine.append(case.prompt_ids, [len(case.prompt_ids) - 1])
                for position in range(case.anchors.length or 0):
                    token = forced.get(position)
                    token = int(logits[0].argmax()) if token is None else token
                    logits = self.engine.append([token], [0])

        passes = _tokens(cases) + len(cases)
        return Trial(self.name, name, _tokens(cases), lambda: passes, lambda: None, run)

    def synthetic(self, coverage: float, prompt: int, length: int) -> FillCase:
        """An answer of `length` tokens, a share `coverage` of them anchored at random positions."""
        random = np.random.default_rng(1)
        places = [int(p) for p in random.permutation(length)[: round(coverage * length)]]
        anchors = AnchorSet.of({p: self.ids[-1 - p] for p in places}, length, self.contract, length)
        return FillCase(self.ids[:prompt], anchors)


def _tokens(cases: Sequence[FillCase]) -> int:
    return sum(case.anchors.length or 0 for case in cases)


def passes(bench: Bench, depths: Sequence[int]) -> Iterator[Trial]:
    """The tests of single passes that fit an engine's context."""
    context = bench.engine.context
    for size in (64, 256):
        if size < context:
            yield bench.prefill(size)
    for depth in depths:
        if depth + DECODED < context:
            yield bench.decode(depth)
    for scored in (False, True):
        for size in CHUNKS:
            if 64 + size < context:
                yield bench.chunk(size, 64, scored=scored)


def answers(bench: Bench, prompt: int, length: int) -> Iterator[Trial]:
    """The tests of whole made-up answers."""
    for coverage in COVERAGES:
        case = bench.synthetic(coverage, prompt, length)
        for scored in (False, True):
            label = f"fill at {coverage:.0%}{', scored' if scored else ''}"
            yield bench.fill(label, [case], FillOptions(score_anchors=scored))
    yield bench.stepwise("one pass a position", [bench.synthetic(0.0, prompt, length)])
