"""The engine of a service whose model runs on a server: jobs are asked for side by side, not batched here.

Responsible for which jobs are asked for, and for a server's errors as those of the service. Not responsible
for admission, selection and encoding (see `engine`), nor for what a server is asked (see `model`).

    submit -> waiting -> a run for each payload's steps -> selection and encoding -> deliver
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

from cloud_anchor.errors import CloudError, ServerBusyError, ServerError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import AskedModel
from cloud_anchor.serve.batching.engine import BatchEngine, FinishedRun, StepObserver
from cloud_anchor.serve.batching.jobs import Job
from cloud_anchor.serve.errors import ServiceError, internal, overloaded, refused, too_late
from cloud_anchor.serve.settings import Limits
from edge_runtime.errors import EdgeError

log = logging.getLogger("cloud_anchor.serve")

MOST_CANVASES = 8
"""Canvases of a watched answer: each is a run from the beginning."""


class AskingEngine(BatchEngine):
    """A `BatchEngine` over an `AskedModel`: `limits.batch` jobs are asked for at once, the others wait."""

    def __init__(
        self, pipeline: Pipeline, limits: Limits, on_step: StepObserver = lambda rows, seconds: None
    ) -> None:
        super().__init__(pipeline, limits, on_step)
        assert isinstance(pipeline.model, AskedModel)
        self._model = pipeline.model
        self._asked: set[Job] = set()

    @property
    def broken(self) -> bool:
        """Of a server that is away a restart here brings none back."""
        return not all(thread.is_alive() for thread in self._threads)

    def _running(self) -> int:
        return len(self._asked)

    def _run_model(self) -> None:
        with ThreadPoolExecutor(self.limits.batch, "ask") as pool:
            while (job := self._next()) is not None:
                pool.submit(self._ask, job)
        self._finished.put(None)

    def _next(self) -> Job | None:
        """Waits for a job and a place for it; None once the engine closes and all are asked for."""
        with self._changed:
            while not self._waiting or len(self._asked) >= self.limits.batch:
                if self._closing and not self._waiting:
                    return None
                self._changed.wait()
            job = self._waiting.popleft()
            self._asked.add(job)
            return job

    def _ask(self, job: Job) -> None:
        """The runs of a job, one after the other."""
        marks = job.payload_steps
        if job.watched:
            marks = (*marks[:-1][:: -(-len(marks) // MOST_CANVASES)], marks[-1])
        try:
            runs, began = self._model.runs(job.prompt_ids, job.config, marks, job.left), time.perf_counter()
            while not self._dropped(job) and (run := next(runs, None)) is not None:
                self._took(job, run, (time.perf_counter() - began) / run.steps)
                began = time.perf_counter()
        except ServerError as error:
            self._health.failed()
            log.error("%s", error)
            self._end(job, _refusal(error, job))
        except (CloudError, EdgeError) as error:
            self._end(job, refused(error))
        except Exception as error:
            self._health.failed()
            log.error("a run failed", exc_info=error)
            self._end(job, internal(error))
        finally:
            with self._changed:
                self._asked.discard(job)
                self._changed.notify_all()

    def _took(self, job: Job, run: Denoised, seconds: float) -> None:
        """A run of a job, and the seconds of a step."""
        rows, last = len(self._asked), run.steps == job.planned or run.stopped_by == "finished"
        with self._changed:
            self._health.succeeded()
            job.steps_left = 0 if last else job.planned - run.steps
            self._forecast.speed.add(rows, seconds)
            if last:
                self._forecast.saw_answer(job, run.steps)
        self._on_step(rows, seconds)
        self._finished.put(FinishedRun(job, run, last))


def _refusal(error: ServerError, job: Job) -> ServiceError:
    """A server's failure as the service's: its text is for whoever runs the service, not for devices."""
    if not job.left():
        return too_late(job.time_limit)
    if isinstance(error, ServerBusyError):
        return overloaded("a place on the server of the model", "none free", error.retry_after or 2.0)
    remedy = "Try again; if it stays, tell whoever runs the service. Its log has the details."
    return ServiceError(502, "backend_failed", "an answer of the model's server", "none", remedy)
