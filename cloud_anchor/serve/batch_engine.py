"""Two threads that own the models: one runs denoising steps over all live requests, one makes payloads.

Knows who waits, who is in the batch, and how requests join it and leave it between two steps: done, given
up by their client, or out of time. Does not know HTTP, asyncio or text: a job comes with token ids and a
function to call with what becomes of it.

    submit -> waiting -> batch (a step of all, again and again) -> payload -> deliver
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch

from cloud_anchor.errors import CloudError, NothingToSendError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import Running
from cloud_anchor.serve.errors import (
    internal,
    out_of_memory,
    overloaded,
    refused,
    stopping,
    too_late,
)
from cloud_anchor.serve.jobs import Event, Job, Load, Rate, Ready
from cloud_anchor.serve.settings import Limits
from edge_runtime.errors import EdgeError
from payload import AnchorSet, PayloadError
from payload.wire import Base, encode

log = logging.getLogger("cloud_anchor.serve")

FAILURES_UNTIL_SICK = 3
"""So many steps in a row that failed, and the service says that it is not ready."""


STEPS_UNTIL_LARGER = 500
"""So many steps without a shortage of memory, and a batch that was halved takes one answer more."""

Watch = Callable[[int, float], None]
"""Told of every step: how many answers it advanced, and its seconds."""


class BatchEngine:
    """The models and the requests they work on. All methods may be called from any thread."""

    def __init__(self, pipeline: Pipeline, limits: Limits, watch: Watch = lambda rows, seconds: None) -> None:
        self.pipeline = pipeline
        self.limits = limits
        self._watch = watch
        self._batch = limits.batch
        self._calm = 0  # steps since memory was last short
        self._changed = threading.Condition()
        self._jobs: set[Job] = set()  # all that were taken and are not answered
        self._waiting: deque[Job] = deque()
        self._groups: list[Running[Job]] = []
        self._runs: queue.Queue[tuple[Job, Denoised, bool] | None] = queue.Queue(2 * limits.batch)
        self._rate = Rate()
        self._failures = 0
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run_model, name="denoise", daemon=True),
            threading.Thread(target=self._run_chooser, name="choose", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def healthy(self) -> bool:
        """Whether steps succeed and both threads live."""
        return self._failures < FAILURES_UNTIL_SICK and all(thread.is_alive() for thread in self._threads)

    def load(self) -> Load:
        with self._changed:
            return self._load()

    def _load(self) -> Load:
        waiting, running = len(self._waiting), sum(len(group) for group in list(self._groups))
        return Load(
            waiting=waiting,
            running=running,
            choosing=max(0, len(self._jobs) - waiting - running),
            steps_left=sum(job.steps_left for job in self._jobs),
            rate=self._rate.value,
        )

    def submit(self, job: Job) -> None:
        """Takes a job, which will be answered, or raises ServiceError (503) with the time after which to ask
        again.
        """
        with self._changed:
            if self._closing:
                raise stopping()
            load = self._load()
            # The time until all that was taken is done, by what the last seconds have shown.
            wait = load.steps_left / load.rate if load.rate else 0.0
            most = self.limits.batch + self.limits.queue
            if len(self._jobs) >= most:
                found = f"{len(self._jobs)} of them"
                raise overloaded(f"fewer than {most} requests in the service", found, wait / 2)
            if wait > job.allowed:
                raise overloaded(
                    f"to be done within the request's {job.allowed:g} s",
                    f"{wait:.0f} s of work before it",
                    wait,
                )
            self._jobs.add(job)
            self._waiting.append(job)
            self._changed.notify_all()

    def leave(self, job: Job) -> None:
        """Nobody waits for this job any more: it leaves the batch before the next step."""
        job.gone = True

    def close(self) -> None:
        """Takes no more jobs, finishes those taken, and ends the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _end(self, job: Job, event: Event | None = None) -> None:
        """The job is over; `event` is what its client is told, None where there is nobody to tell."""
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.discard(job)
        job.steps_left = 0
        if event is not None and not job.gone:
            job.deliver(event)
        job.gone = True

    # The thread of the diffusion model.

    def _run_model(self) -> None:
        while self._next_round():
            for group in list(self._groups):
                self._step(group)
        self._runs.put(None)

    def _next_round(self) -> bool:
        """Waits for work and puts it into the batch; False once all is done and no more will come."""
        with self._changed:
            while not self._waiting and not self._groups and not self._closing:
                self._changed.wait()
            waiting = list(self._waiting)
            self._waiting.clear()
        free = self._batch - sum(len(group) for group in self._groups)
        keep: list[Job] = []
        for job in waiting:
            if self._dropped(job):
                continue
            if free > 0:
                self._group_for(job).join(job, job.prompt_ids, job.marks)
                free -= 1
            else:
                keep.append(job)
        with self._changed:
            self._waiting.extendleft(reversed(keep))
        for group in list(self._groups):
            group.leave([job for job in group.names if self._dropped(job)])
            if not len(group):
                self._groups.remove(group)
        return bool(self._groups or keep or not self._closing)

    def _dropped(self, job: Job) -> bool:
        """Whether a job is no longer worth a step; where its time is up, its client is told."""
        if not job.gone and time.monotonic() < job.deadline:
            return False
        self._end(job, too_late(job.allowed))
        return True

    def _group_for(self, job: Job) -> Running[Job]:
        """Answers of one configuration are denoised together; how many steps each runs is its own affair."""
        config = replace(job.config, steps=None)
        for group in self._groups:
            if group.config == config and len(group) < self._batch:
                return group
        self._groups.append(Running(self.pipeline.model, config))
        return self._groups[-1]

    def _step(self, group: Running[Job]) -> None:
        jobs = group.names
        began = time.perf_counter()
        try:
            seen = group.step()
        except Exception as error:
            self._failed(group, error)
            return
        self._failures = 0
        self._calm += 1
        if self._batch < self.limits.batch and self._calm >= STEPS_UNTIL_LARGER:
            self._batch, self._calm = self._batch + 1, 0
        for job in jobs:
            job.steps_left = max(0, job.steps_left - 1)
        for job, run, done in seen:
            job.steps_left = 0 if done else job.steps_left
            self._runs.put((job, run, done))  # waits where payloads are not made as fast as runs
        if not len(group):
            self._groups.remove(group)
        seconds = time.perf_counter() - began
        self._rate.add(len(jobs), seconds)
        self._watch(len(jobs), seconds)

    def _failed(self, group: Running[Job], error: Exception) -> None:
        """Where memory was short, the batch is halved and nobody loses; else its jobs fail, and only they."""
        short = is_out_of_memory(error)
        if short and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if short and len(group) > 1:
            self._batch, self._calm = max(1, len(group) // 2), 0
            self._groups.append(group.split())
            log.warning(
                "out of memory with %d answers together; going on with %d", len(group) * 2, self._batch
            )
            return
        self._failures += not short
        log.error("a step failed", exc_info=error)
        for job in group.names:
            self._end(job, out_of_memory() if short else internal(error))
        self._groups.remove(group)

    # The thread of the edge model and of the codec.

    def _run_chooser(self) -> None:
        while (item := self._runs.get()) is not None:
            job, run, last = item
            if job.gone:
                self._end(job)
                continue
            try:
                ready = self._payload(job, run, last)
            except (CloudError, EdgeError, PayloadError) as error:
                self._end(job, refused(error))
                continue
            except Exception as error:
                log.error("a payload could not be made", exc_info=error)
                self._end(job, internal(error))
                continue
            if last:
                self._end(job, ready)
            else:
                job.deliver(ready)

    def _payload(self, job: Job, run: Denoised, last: bool) -> Ready:
        """A whole payload, or where it only adds to the one before, the addition."""
        anchors = self._anchors(job, run)
        data, delta = None, False
        if job.base is not None and not job.whole:
            # Refused where what was sent is not all true any more.
            with suppress(PayloadError):
                data, delta = encode(anchors, prompt_ids=run.prompt_ids, base=job.base), True
        data = data or encode(anchors, prompt_ids=run.prompt_ids)
        job.base = Base(data, anchors)
        return Ready(
            data, len(anchors), anchors.length, run.steps, run.total_steps, run.canvas, delta=delta, last=last
        )

    def _anchors(self, job: Job, run: Denoised) -> AnchorSet:
        try:
            (made,) = self.pipeline.choose([""], [run], job.selection)
        except NothingToSendError:
            # Not worth an error: the device then writes alone what the cloud does not know yet either.
            return run.anchors({}, self.pipeline.form.contract, None)
        return replace(made.anchors, prompt=None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a step failed for want of memory, on a GPU or on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
