"""Continuous batching: one thread runs denoising steps over all live jobs, another one encodes payloads.

Responsible for admission, for the queue and the batch, and for jobs that join and leave between two steps
(finished, cancelled or past their deadline). Not responsible for HTTP, asyncio or text: a job has token ids
and a callback for its results.

    submit -> waiting -> batch (repeated steps over all rows) -> selection and encoding -> deliver
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from cloud_anchor.errors import CloudError, RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.serve.batching.encoding import payloads_of
from cloud_anchor.serve.batching.forecast import BatchSpeed, Forecast
from cloud_anchor.serve.batching.health import Health
from cloud_anchor.serve.batching.jobs import CanvasStep, Job, JobEvent
from cloud_anchor.serve.errors import (
    internal,
    out_of_memory,
    overloaded,
    refused,
    stopping,
    too_late,
)
from cloud_anchor.serve.settings import Limits
from edge_runtime.errors import EdgeError, UsageError
from payload import PayloadError

log = logging.getLogger("cloud_anchor.serve")

STEPS_BEFORE_GROWTH = 500
"""Steps without a shortage of memory after which a halved batch grows by one row."""

PADDING = 1.5
"""Most positions of a row in a batch, as a multiple of its own: longer rows have a batch of their own."""

RECENT = 30.0
"""Seconds for which a client that has asked counts as one of those who share the service."""

PLACES = 2
"""The part of all places, batch and queue, that a client may hold while others ask: one in so many."""

StepObserver = Callable[[int, float], None]
"""Called after every step with its number of rows and its seconds."""


class FinishedRun(NamedTuple):
    """A run that has reached a step count at which its job gets a payload. last: it gets no further one."""

    job: Job
    run: Denoised
    last: bool


class Clients:
    """Who asked last. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}  # two of them, the latest last: one is not the one who asks

    def asks(self, client: str, now: float) -> None:
        """A client's request has come. One without a name is the service's own, and shares with nobody."""
        if client:
            self._asked.pop(client, None)
            self._asked = dict([*self._asked.items(), (client, now)][-2:])

    def others(self, client: str, now: float) -> bool:
        """True where the service is not this client's alone."""
        return any(name != client and now - at < RECENT for name, at in self._asked.items())


class BatchEngine:
    """The pipeline and the jobs it works on. All methods may be called from any thread."""

    def __init__(
        self, pipeline: Pipeline, limits: Limits, on_step: StepObserver = lambda rows, seconds: None
    ) -> None:
        self.pipeline = pipeline
        self.limits = limits
        self._on_step = on_step
        self._batch = limits.batch
        self._steps_since_shortage = 0
        self._changed = threading.Condition()
        self._jobs: dict[Job, None] = {}  # all that are admitted and not finished, in order
        self._waiting: deque[Job] = deque()
        self._groups: list[ContinuousBatch[Job]] = []
        self._finished: queue.Queue[FinishedRun | None] = queue.Queue(2 * limits.batch)
        self._forecast = Forecast()
        self._clients = Clients()
        self._health = Health()
        self._suspects: set[ContinuousBatch[Job]] = set()  # one of their rows has failed: none may join
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run_model, name="denoise", daemon=True),
            threading.Thread(target=self._run_encoder, name="encode", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def healthy(self) -> bool:
        """True while steps succeed, or may again."""
        return not self.broken and self._health.good

    @property
    def broken(self) -> bool:
        """True where only a restart helps: a thread has ended, or no job has succeeded for long."""
        return self._health.lost or not all(thread.is_alive() for thread in self._threads)

    def figures(self) -> dict[str, float]:
        """Jobs by state, and steps expected of all, by the names of `telemetry.GAUGES`."""
        with self._changed:  # which its owner may enter again
            waiting, running = len(self._waiting), self._running()
            return {
                "waiting_requests": waiting,
                "running_requests": running,
                "encoding_requests": max(0, len(self._jobs) - waiting - running),
                "expected_steps": sum(map(self._forecast.steps_left, self._wanted())),
            }

    def _wanted(self) -> list[Job]:
        """Jobs whose clients still wait: the others leave before the next step."""
        return [job for job in self._jobs if not job.cancelled]

    def _running(self) -> int:
        """Jobs that the model works on."""
        return sum(len(group) for group in list(self._groups))

    def submit(self, job: Job) -> None:
        """Admit a job, whose results will be delivered.

        Raises ServiceError (503) with the time after which to retry where the queue is full, the job would
        miss its deadline, or the engine is closing.
        """
        with self._changed:
            if self._closing:
                raise stopping()
            now = time.monotonic()
            self._clients.asks(job.client, now)
            before = self._forecast.finish_times(self._wanted(), self._batch)
            wait = max(before, default=1.0)  # for those refused: until those before them are done
            most = self.limits.batch + self.limits.queue
            if len(self._jobs) >= most:
                found = f"{len(self._jobs)} of them"
                raise overloaded(f"fewer than {most} requests in the service", found, wait)
            own = sum(other.client == job.client for other in self._jobs)
            if own >= most // PLACES and self._clients.others(job.client, now):
                expected = f"fewer than {most // PLACES} requests of a client while others ask"
                raise overloaded(expected, f"{own} of them", wait)
            self._require_time_for(job, before)
            self._jobs[job] = None
            self._waiting.append(job)
            self._changed.notify_all()

    def _require_time_for(self, job: Job, before: Sequence[float]) -> None:
        """Raises ServiceError where a job, or one that it would run beside, would miss its deadline.

        before: when those admitted are done without it. An idle engine takes any, to measure its speed again.
        """
        jobs = self._wanted()
        if not jobs:
            return
        *with_it, own = self._forecast.finish_times(jobs, self._batch, job)
        now = time.monotonic()
        times = zip(jobs, before, with_it, strict=True)
        crowded = any(now + soon <= other.deadline < now + late for other, soon, late in times)
        if own > job.time_limit or crowded:
            expected = f"to be done within the request's {job.time_limit:g} s"
            raise overloaded(expected, f"{own:.0f} s with those before it", max(before))

    def forget_speed(self) -> None:
        """For after the first steps, which are slower than any later one."""
        with self._changed:
            self._forecast.speed = BatchSpeed()

    def cancel(self, job: Job) -> None:
        """Remove a job without a waiting client: it leaves the batch before the next step."""
        job.cancelled = True

    def close(self) -> None:
        """Admit no more jobs, finish those admitted, and join the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _end(self, job: Job, event: JobEvent | None = None) -> None:
        """Finish a job; `event`, where there is one, is delivered to its client."""
        with self._changed:
            if job not in self._jobs:
                return
            del self._jobs[job]
        job.steps_left = 0
        if event is not None and not job.cancelled:
            job.deliver(event)
        job.cancelled = True

    # Thread of the diffusion model.

    def _run_model(self) -> None:
        while self._next_round():
            self._round()
        self._finished.put(None)

    def _next_round(self) -> bool:
        """Wait for jobs and move them into the batch; False once all are finished and the engine closes."""
        with self._changed:
            while not self._waiting and not self._groups and not self._closing:
                self._changed.wait()
            waiting = list(self._waiting)
            self._waiting.clear()
        free = self._batch - self._rows()
        keep: list[Job] = []
        for job in waiting:
            if self._dropped(job):
                continue
            if free >= min(job.rows, self._batch):
                if self._joins(job):
                    free -= job.rows
            else:
                free = 0  # nobody behind it passes: it would wait for ever
                keep.append(job)
        for group in list(self._groups):
            group.leave([job for job in group.names if self._dropped(job)])
            if not len(group):
                self._groups.remove(group)
        with self._changed:  # jobs may have been admitted since, just before it closes
            self._waiting.extendleft(reversed(keep))
            return bool(self._groups or self._waiting or not self._closing)

    def _joins(self, job: Job) -> bool:
        """Puts a job into a batch; False where its options do not fit the model, which ends it alone."""
        group = self._group_of(job) or self._new_group(job)
        try:
            group.join(job, job.prompt_ids, job.payload_steps)
        except Exception as error:
            self._end_failed(job, error)
            return False
        return True

    def _dropped(self, job: Job) -> bool:
        """True where a job is cancelled or past its deadline; the latter delivers an error."""
        if not job.cancelled and time.monotonic() < job.deadline:
            return False
        self._end(job, too_late(job.time_limit))
        return True

    def _rows(self) -> int:
        """Of the batch, that are taken."""
        return sum(job.rows for group in list(self._groups) for job in group.names)

    def _group_of(self, job: Job) -> ContinuousBatch[Job] | None:
        """A batch of the job's configuration, of rows about as long; they may differ in their steps."""
        config = replace(job.config, steps=None)
        for group in list(self._groups):
            if group.config == config and group not in self._suspects:
                lengths = [len(each.prompt_ids) + config.canvas for each in (job, *group.names)]
                if max(lengths) <= PADDING * min(lengths):
                    return group
        return None

    def _new_group(self, job: Job) -> ContinuousBatch[Job]:
        config = replace(job.config, steps=None)
        self._groups.append(ContinuousBatch(self.pipeline.model, config))
        return self._groups[-1]

    def _round(self) -> None:
        """Run a step of every row."""
        rows, began = min(self._rows(), self._batch), time.perf_counter()
        worked = [self._step(group) for group in list(self._groups)]
        if worked and all(worked):
            with self._changed:
                self._forecast.speed.add(rows, time.perf_counter() - began)

    def _step(self, group: ContinuousBatch[Job]) -> bool:
        """Run a step of its rows; False where it fails."""
        jobs = group.names
        began = time.perf_counter()
        try:
            reached = group.step()
        except Exception as error:
            self._failed(group, error)
            return False
        self._health.succeeded()
        self._suspects.discard(group)
        self._steps_since_shortage += 1
        if self._batch < self.limits.batch and self._steps_since_shortage >= STEPS_BEFORE_GROWTH:
            self._batch, self._steps_since_shortage = self._batch + 1, 0
        ended = {job for job, _, done in reached if done}
        with self._changed:
            for job in jobs:
                job.steps_left = max(0, job.steps_left - 1)
                if job in ended and not job.cancelled:
                    self._forecast.saw_answer(job, job.planned - job.steps_left)
                    job.steps_left = 0
        for job, run, done in reached:
            self._finished.put(FinishedRun(job, run, done))  # waits while encoding is slower than denoising
        if not len(group):
            self._groups.remove(group)
        self._on_step(len(jobs), time.perf_counter() - began)
        return True

    def _failed(self, group: ContinuousBatch[Job], error: Exception) -> None:
        """Halve the batch, whose answers are as before the step, until the answer that fails is alone."""
        short, rows = is_out_of_memory(error), len(group)
        if short and (torch := sys.modules.get("torch")) and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if rows > 1:
            other = group.split()
            self._groups.append(other)
            if short:
                taken = sum(job.rows for job in (*group.names, *other.names))
                self._batch, self._steps_since_shortage = max(1, taken // 2), 0
                log.warning("out of memory with %d answers together; continuing with %d", rows, self._batch)
            else:
                self._suspects |= {group, other}
            return
        self._groups.remove(group)
        self._suspects.discard(group)
        self._end_failed(group.names[0], error)

    def _end_failed(self, job: Job, error: Exception) -> None:
        """End a job that fails by itself, and count it where the fault is not the request's own."""
        short = is_out_of_memory(error)
        if short or isinstance(error, RequestError | UsageError | PayloadError):
            self._end(job, out_of_memory() if short else refused(error))
            return
        self._health.failed()
        log.error("a step failed", exc_info=error)
        self._end(job, internal(error))

    # Thread of the selection (edge model) and of the codec.

    def _run_encoder(self) -> None:
        while (finished := self._finished.get()) is not None:
            self._encode(*finished)

    def _encode(self, job: Job, run: Denoised, last: bool) -> None:
        """Deliver the payloads of a run, or the error."""
        if self._dropped(job):
            return
        if job.watched:
            job.deliver(CanvasStep(run, last))
            if not last:
                return
        began = time.perf_counter()
        try:
            served = payloads_of(self.pipeline, job, run, last)
        except Exception as error:
            if isinstance(error, CloudError | EdgeError | PayloadError):
                self._end(job, refused(error))
            else:
                log.error("a payload could not be made", exc_info=error)
                self._end(job, internal(error))
            return
        with self._changed:
            self._forecast.saw_encoding(time.perf_counter() - began)
        for each in served:
            if each.last:
                self._end(job, each)
            elif not job.cancelled:
                job.deliver(each)


def is_out_of_memory(error: BaseException) -> bool:
    """True where a step failed for lack of memory, on a GPU or on a CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # PyTorch's
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
