"""When jobs will be done: from the steps that answers run before they stop, and from the speed of the batch.

Responsible for both estimates and for the time that a queue takes by them. Not responsible for admission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.serve.batching.jobs import Job

HALF_LIFE = 5.0
"""Seconds of work after which a measurement of speed counts half."""

ANSWERS = 64
"""Answers over which the share that ends after a step is a mean."""

PRIOR = 2
"""Answers for which the share of all steps counts in that of one."""

LAST = 4
"""Steps, the last that any answer has come to, by which those beyond are judged: few are seen there, and more
of them end than of all.
"""

SURE = 0.99
"""Share of the answers that are done after `StepCounts.most` steps."""

MARGIN = 1.1
"""What a new job's time is taken to be longer, since means over a queue scatter."""


class Throughput:
    """Work per second, as an exponential moving average over busy time."""

    def __init__(self) -> None:
        self._work = self._seconds = 0.0

    def add(self, work: float, seconds: float) -> None:
        keep = 0.5 ** (seconds / HALF_LIFE)
        self._work = self._work * keep + work
        self._seconds = self._seconds * keep + seconds

    @property
    def value(self) -> float | None:
        return self._work / self._seconds if self._seconds else None


class MovingShare:
    """The share of the last events of which something was true; 0 before the first."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.seen = 0
        self.value = 0.0

    def add(self, true: bool) -> None:
        self.seen = min(self.seen + 1, self._window)
        self.value += (true - self.value) / self.seen


class BatchSpeed:
    """Seconds of a step by the rows that run together: a constant and a share for each row. It is a line
    through all steps, of which recent ones count more. On a GPU eight rows may take no longer than one.

    One line, and no mean for each number of rows: a slow step would then stand for its number for as long as
    nobody is admitted to it.
    """

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = self._seconds = 0.0  # means
        self._variance = self._covariance = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        self._weight = self._weight * 0.5 ** (seconds / HALF_LIFE) + 1
        new = 1 / self._weight
        more, longer = rows - self._rows, seconds - self._seconds
        self._rows += new * more
        self._seconds += new * longer
        self._variance = (1 - new) * (self._variance + new * more * more)
        self._covariance = (1 - new) * (self._covariance + new * more * longer)

    def seconds(self, rows: int) -> float:
        """Of a step; 0 before the first. Neither the constant nor a row's share is negative."""
        if not self._weight:
            return 0.0
        most = self._seconds / self._rows  # without a constant; so too where all steps had as many rows
        a_row = min(max(self._covariance / self._variance, 0.0), most) if self._variance else most
        return self._seconds + a_row * (rows - self._rows)


class StepCounts:
    """How many steps answers run: moving means of the share that ends after each step.

    An answer that runs only the steps it was asked for says nothing about later ones.
    """

    def __init__(self) -> None:
        self._at: list[MovingShare] = []
        self._any = MovingShare(ANSWERS**2)

    def add(self, step: int, *, ended: bool) -> None:
        """An answer that might have gone on after this step (from 1) has, or has not."""
        self._at += [MovingShare(ANSWERS) for _ in range(step - len(self._at))]
        for share in (self._at[step - 1], self._any):
            share.add(ended)

    def expected(self, done: int, planned: int) -> float:
        """Mean number of steps left to an answer that goes on after `done`; the next one is certain."""
        return sum(self._going_on(done, planned))

    def most(self, planned: int) -> int:
        """Steps after which all but a few answers are done."""
        return sum(share > 1 - SURE for share in self._going_on(0, planned))

    def _going_on(self, done: int, planned: int) -> list[float]:
        """The share of answers that run each of the steps left; steps that few ran count as the others do,
        those at the end of what was seen and beyond as the last of them.
        """
        if done >= planned:
            return []
        known, last = len(self._at), self._at[-LAST:]
        latest = _share(self._any.value, last)
        ending = [
            _share(latest if step >= known - LAST else self._any.value, self._at[step : step + 1])
            for step in range(done, planned - 1)
        ]
        return list(accumulate(ending, lambda share, end: share * (1 - end), initial=1.0))


def _share(usual: float, of: Sequence[MovingShare]) -> float:
    """The share of all of these together, where `usual` counts as PRIOR events."""
    seen = sum(each.seen for each in of)
    return (sum(each.seen * each.value for each in of) + PRIOR * usual) / (seen + PRIOR)


class Turn(NamedTuple):
    """Steps that a job of a queue is expected to run, and rows of the batch that it takes."""

    steps: float
    rows: int = 1


def finish_rounds(queue: Iterable[Turn], slots: int) -> list[float]:
    """The steps of the batch after which each of a queue is done; `slots` rows run together, in order."""
    ends: list[float] = []
    free = [0.0] * slots
    for turn in queue:
        *_, start = taken = [heappop(free) for _ in range(min(turn.rows, slots))]
        ends.append(start + turn.steps)
        for _ in taken:
            heappush(free, ends[-1])
    return ends


class Forecast:
    """What the engine has seen of steps and speed. Not thread-safe."""

    def __init__(self) -> None:
        self._steps: defaultdict[DenoiseConfig, StepCounts] = defaultdict(StepCounts)
        self._speed = BatchSpeed()

    def forget_speed(self) -> None:
        """For after the first steps, which are slower than any later one."""
        self._speed = BatchSpeed()

    def saw_round(self, rows: int, seconds: float) -> None:
        """A step of every row took so long."""
        self._speed.add(rows, seconds)

    def saw_step(self, job: Job, *, ended: bool) -> None:
        """A job has run a step, and has ended with it or not."""
        done = job.planned - job.steps_left
        if job.steps_left:  # else it could not have gone on
            self._steps[job.kind].add(done, ended=ended)

    def finish_times(self, jobs: Sequence[Job], slots: int, new: Job | None = None) -> list[float]:
        """Seconds until each job is done, in their order, and `new` after them; that one if it takes long.

        No fewer rows than now are assumed to run from now on, since others may come.
        """
        turns = [Turn(steps, job.rows) for job, steps in zip(jobs, self._expected(jobs), strict=True)]
        if new is not None:
            turns.append(Turn(self._steps[new.kind].most(new.planned), new.rows))
        each = self._speed.seconds(min(slots, sum(turn.rows for turn in turns)))
        times = [rounds * each for rounds in finish_rounds(turns, slots)]
        return times if new is None else [*times[:-1], times[-1] * MARGIN]

    def steps_left(self, jobs: Iterable[Job]) -> float:
        """Steps that are expected of all jobs."""
        return sum(self._expected(jobs))

    def _expected(self, jobs: Iterable[Job]) -> list[float]:
        @cache  # most jobs of a queue are alike
        def left(counts: StepCounts, steps: int, planned: int) -> float:
            return counts.expected(planned - steps, planned)

        return [left(self._steps[job.kind], job.steps_left, job.planned) for job in jobs]
