"""Admission against what comes true: thousands of requests on a clock of the test's own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.batching import engine as engine_module
from cloud_anchor.serve.batching import jobs as jobs_module
from cloud_anchor.serve.batching.engine import BatchEngine
from cloud_anchor.serve.batching.forecast import BatchSpeed, Forecast
from cloud_anchor.serve.batching.jobs import Job
from cloud_anchor.serve.errors import ServiceError, overloaded
from cloud_anchor.serve.settings import Limits

BATCH = 8
"""Rows that run together."""


def on_cpu(rows: int) -> float:
    """Seconds of a step."""
    return 0.02 * rows


def on_gpu(rows: int) -> float:
    """Seconds of a step."""
    return 0.05 + 0.002 * rows


class SlowAtFirst:
    """A second for the first step of each number of rows, whose kernels are prepared in it."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def __call__(self, rows: int) -> float:
        known, self.known = rows in self.known, self.known | {rows}
        return on_cpu(rows) + (not known)


class Clock:
    """Time that passes only in steps of the model."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


class Rows:
    """A `ContinuousBatch` whose rows end after as many steps as their prompt says."""

    def __init__(self, clock: Clock, seconds: Callable[[int], float], config: DenoiseConfig) -> None:
        self.clock, self.seconds, self.config = clock, seconds, config
        self.names: list[Job] = []

    def __len__(self) -> int:
        return len(self.names)

    def join(self, job: Job, prompt: Sequence[int], marks: Sequence[int], **options: object) -> None:
        self.names.append(job)

    def leave(self, gone: Iterable[Job]) -> None:
        self.names = [job for job in self.names if job not in set(gone)]

    def step(self) -> list[tuple[Job, Any, bool]]:
        self.clock.now += self.seconds(len(self))
        done = [job for job in self.names if steps_run(job) + 1 >= job.prompt_ids[0]]
        self.leave(done)
        return [(job, None, True) for job in done]


def steps_run(job: Job) -> int:
    return job.planned - job.steps_left


class Outcome(NamedTuple):
    """Of the requests of a run. missed: admitted, but not done by the deadline."""

    asked: int = 0
    answered: int = 0
    missed: int = 0
    refused: int = 0


class Case(NamedTuple):
    """Requests at random times, in groups of `burst`, from three clients. encoding: seconds of a payload."""

    planned: int
    per_second: float
    deadline: float
    seconds: Callable[[int], float]
    burst: int = 1
    encoding: float = 0.0


Policy = Callable[[BatchEngine, Job, Sequence[float]], None]


def run(case: Case, policy: Policy = BatchEngine._require_time_for, *, seconds: float = 80) -> Outcome:
    """Requests to a service that has run a batch, for so many seconds."""
    dice, clock, found = random.Random(1), Clock(), Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine_module, jobs_module):
            patch.setattr(module, "time", clock)
        rows = partial(Rows, clock, case.seconds)
        patch.setattr(engine_module, "ContinuousBatch", lambda model, config: rows(config))
        patch.setattr(BatchEngine, "_require_time_for", policy)
        pipeline: Any = SimpleNamespace(scorer=None, model=None, translation=None)
        engine = BatchEngine(pipeline, Limits(batch=BATCH, queue=64, deadline=case.deadline))

        engine._forecast.speed.add(BATCH, case.seconds(BATCH))
        config = DenoiseConfig(canvas=24, total_steps=192, steps=case.planned, stop="complete")
        kind = replace(config, canvas=1, steps=None)
        for steps in (dice.randint(8, 14) for _ in range(BATCH)):
            engine._forecast._steps[kind].add(steps, stopped=True)

        def late(event: Any) -> None:  # the only event of this engine, whose encoder does not run
            found["missed"] += 1

        def ask() -> bool:
            prompt, plan = (dice.randint(8, 14),), (case.planned,)
            client = f"device {dice.randint(1, 3)}"
            job = Job(prompt, config, plan, Selection("paper"), case.deadline, late, client=client)
            try:
                engine.submit(job)
            except ServiceError:
                return False
            return True

        due, encoder = 0.0, 0.0
        encoding: list[tuple[float, Job]] = []
        while clock.now < seconds:
            while due <= clock.now:
                for _ in range(case.burst):
                    found.update(asked=1, refused=not ask())
                due += dice.expovariate(case.per_second / case.burst)
            if len(engine._jobs) == len(encoding):
                clock.now = max(clock.now, min([due, *(at for at, _ in encoding)]))
            else:
                engine._next_round()
                engine._round()
            while not engine._finished.empty():
                finished = engine._finished.get_nowait()
                assert finished is not None
                encoder = max(encoder, clock.now) + case.encoding
                encoding.append((encoder, finished.job))
            while encoding and encoding[0][0] <= clock.now:
                _, job = encoding.pop(0)
                if not engine._dropped(job):
                    found["answered"] += 1
                    engine._forecast.saw_encoding(case.encoding)
                    engine._end(job)
    return Outcome(**found)


def by_foresight(engine: BatchEngine, job: Job, before: Sequence[float]) -> None:
    """With the steps that every answer will run."""
    queue = [*engine._jobs, job]
    free = [0] * BATCH
    for each in queue:
        free.sort()
        free[0] += each.prompt_ids[0] - steps_run(each)
        end = free[0]
    if end * engine._forecast.speed.seconds(min(BATCH, len(queue))) > job.time_limit:
        raise overloaded("", "", 1)


CASES = {
    "CPU, at capacity": Case(19, 4.5, 30, on_cpu),
    "CPU, 3 times that, 5 s": Case(19, 13.5, 5, on_cpu),
    "CPU, 192 steps, 3 times, 10 s": Case(192, 13.5, 10, on_cpu),
    "CPU, 192 steps, bursts, 10 s": Case(192, 3.0, 10, on_cpu, 100),
    "GPU, 192 steps, bursts, 10 s": Case(192, 3.0, 10, on_gpu, 100),
    "GPU, 192 steps, 3 times, 3 s": Case(192, 30.0, 3, on_gpu),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_admitted_meets_its_deadline_and_as_much_as_could_be_is_admitted(name: str) -> None:
    found, best = run(CASES[name]), run(CASES[name], by_foresight)
    assert found.missed <= (found.answered + found.missed) / 100
    # Foresight picks short answers, of which more can be given, and knows the tail from the first burst on.
    assert found.answered >= 0.6 * best.answered


def test_a_number_of_rows_that_was_slow_once_is_admitted_again() -> None:
    case = CASES["CPU, at capacity"]._replace(deadline=5.0)
    found, even = (run(each, seconds=240) for each in (case._replace(seconds=SlowAtFirst()), case))
    assert found.answered >= 0.95 * even.answered


def test_the_time_in_which_payloads_are_encoded_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["CPU, 3 times that, 5 s"]._replace(encoding=0.2)
    assert run(case).missed <= run(case).answered / 100
    monkeypatch.setattr(Forecast, "saw_encoding", lambda *_: None)
    assert run(case).missed > run(case).answered / 50


@pytest.mark.parametrize("seconds", [on_cpu, on_gpu])
def test_the_speed_of_any_number_of_rows_follows_from_two(seconds: Callable[[int], float]) -> None:
    speed = BatchSpeed()
    assert speed.seconds(4) == 0
    speed.add(2, seconds(2))
    assert speed.seconds(4) == pytest.approx(2 * seconds(2))
    speed.add(8, seconds(8))
    assert [speed.seconds(rows) for rows in range(1, 9)] == pytest.approx([*map(seconds, range(1, 9))])


@pytest.mark.parametrize(("first", "second"), [((2, 1.0), (4, 0.1)), ((2, 0.1), (4, 1.0))])
def test_more_rows_are_never_faster_and_never_slower_than_one_after_another(
    first: tuple[int, float], second: tuple[int, float]
) -> None:
    speed = BatchSpeed()
    for rows, seconds in (first, second):
        speed.add(rows, seconds)
    each = [speed.seconds(rows) for rows in range(1, 9)]
    assert all(few <= more for few, more in pairwise(each))
    assert all(seconds <= rows * each[0] * (1 + 1e-9) for rows, seconds in enumerate(each, 1))
