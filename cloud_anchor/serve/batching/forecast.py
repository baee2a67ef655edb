"""When jobs will be done, by the steps that answers run before they stop and by the speed of the batch."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapreplace
from statistics import fmean, linear_regression

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.serve.batching.jobs import Job

SEEN = 64
"""Answers, and steps of the batch, by which the next ones are judged."""

SURE = 0.99
"""Share of the answers that are done after `StepCounts.most` steps."""

MARGIN = 1.1
"""Factor on a new job's time, since means over a queue scatter."""


class BatchSpeed:
    """Seconds of a step by the rows that run together: a line through the last steps.

    One line, and not a mean for each number of rows: a slow step would then stand for its number for as long
    as nobody is admitted to it. On a GPU eight rows may take no longer than one.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque(maxlen=SEEN)

    def add(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        self._steps.append((rows, seconds))

    def seconds(self, rows: int) -> float:
        """Of a step; 0 before the first. Neither the constant nor a row's share is negative."""
        if not self._steps:
            return 0.0
        counts, times = zip(*self._steps, strict=True)
        mean_rows, mean = fmean(counts), fmean(times)
        most = mean / mean_rows  # without a constant; so too where all steps had as many rows
        a_row = min(max(linear_regression(counts, times).slope, 0), most) if len(set(counts)) > 1 else most
        return mean + a_row * (rows - mean_rows)


class StepCounts:
    """How many steps the last answers ran; infinity for one that ran all that it was asked for."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=SEEN)

    def add(self, steps: int, *, stopped: bool) -> None:
        """An answer has run so many steps; stopped: and would have run no more."""
        self._seen.append(steps if stopped else math.inf)

    def expected(self, done: int, planned: int) -> float:
        """Mean number of steps left to an answer that goes on after `done`: of one that has run more than any
        before it as many again.
        """
        beyond = [steps for steps in self._seen if steps > done] or [2 * done or math.inf]
        return fmean(min(steps, planned) for steps in beyond) - done

    def most(self, planned: int) -> int:
        """Steps after which all but a few answers are done."""
        seen = sorted(self._seen) or [math.inf]
        return int(min(seen[math.ceil(SURE * len(seen)) - 1], planned))


class InProgress:
    """Answers that run side by side outside a batch; those refused are told by them when to retry."""

    def __init__(self) -> None:
        self._began: list[float] = []
        self._seconds = 1.0  # of one, mostly of the last ones

    def __len__(self) -> int:
        return len(self._began)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around an answer; one that fails or is left says nothing of the others."""
        began = time.monotonic()
        self._began.append(began)
        try:
            yield
            self._seconds += (time.monotonic() - began - self._seconds) / 2
        finally:
            self._began.remove(began)

    def seconds_left(self) -> float:
        """Until the first of them is expected to be done."""
        return max(0.0, min(self._began, default=0.0) + self._seconds - time.monotonic())


def finish_rounds(queue: Iterable[tuple[float, int]], slots: int) -> list[float]:
    """The steps of the batch after which each of a queue is done, which runs in order in `slots` rows.

    queue: steps that a job is expected to run, and the rows that it takes.
    """
    ends: list[float] = []
    free = [0.0] * slots
    for steps, rows in queue:
        taken = min(rows, slots)
        ends.append(sorted(free)[taken - 1] + steps)
        for _ in range(taken):
            heapreplace(free, ends[-1])
    return ends


class Forecast:
    """What the engine has seen of steps and speed. Not thread-safe."""

    def __init__(self) -> None:
        self._steps: defaultdict[DenoiseConfig, StepCounts] = defaultdict(StepCounts)
        self._encoding = deque([0.0], SEEN)
        self.speed = BatchSpeed()

    def saw_encoding(self, seconds: float) -> None:
        """A job's payloads were made in so long, one job after the other."""
        self._encoding.append(seconds)

    def saw_answer(self, job: Job, steps: int) -> None:
        """A job is done after so many steps."""
        self._steps[job.kind].add(steps, stopped=steps < job.planned)

    def finish_times(self, jobs: Sequence[Job], slots: int, new: Job | None = None) -> list[float]:
        """Seconds until each job is done, in their order, and `new` after them; that one if it takes long.

        No fewer rows than now are assumed to run from now on, since others may come.
        """
        turns = [(self.steps_left(job), job.rows) for job in jobs]
        if new is not None:
            turns.append((self._steps[new.kind].most(new.planned), new.rows))
        each = self.speed.seconds(min(slots, sum(rows for _, rows in turns)))
        times = [rounds * each for rounds in finish_rounds(turns, slots)]
        encoding, free = fmean(self._encoding), 0.0
        for index in sorted(range(len(times)), key=times.__getitem__):
            times[index] = free = max(free, times[index]) + encoding
        return times if new is None else [*times[:-1], times[-1] * MARGIN]

    def steps_left(self, job: Job) -> float:
        """Steps that a job is expected to run yet."""
        done = job.planned - job.steps_left
        return self._steps[job.kind].expected(done, job.planned) if job.steps_left else 0.0
