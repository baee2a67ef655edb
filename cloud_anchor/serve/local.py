"""Orders fulfilled by an engine in this process.

Knows how an order becomes a job: its prompt's ids, its canvas, its steps, and what of that is refused. Does
not know HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace

from cloud_anchor.pipeline import EDGE_AWARE, SELECTIONS, Pipeline, Selection
from cloud_anchor.sampling.config import ALGORITHMS
from cloud_anchor.sampling.sampler import DenoiseConfig, steps_for
from cloud_anchor.sampling.stops import STOPS
from cloud_anchor.serve.backend import AnchorRequest, ServiceInfo
from cloud_anchor.serve.batch_engine import BatchEngine, Watch
from cloud_anchor.serve.errors import ServiceError, refused, too_late
from cloud_anchor.serve.jobs import Event, Job, Ready
from cloud_anchor.serve.settings import LEAST_CANVAS, Limits
from edge_runtime.errors import UsageError

GRACE = 2.0
"""Seconds after a deadline in which the engine may still say what happened."""


class Local:
    """A `Backend` over one engine.

    config: of a full run; its steps are what a request gets by default. quota: commit by the schedule's quota
    whatever is selected, instead of as `Pipeline.suited` has it.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: DenoiseConfig,
        limits: Limits,
        selection: Selection | None = None,
        watch: Watch = lambda rows, seconds: None,
        name: str | None = None,
        *,
        quota: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.config = config
        self.limits = limits
        self.selection = selection or Selection()
        self.quota = quota
        self.engine = BatchEngine(pipeline, limits, watch)
        self.facts = self._facts(name or pipeline.model.source)

    def _facts(self, name: str) -> ServiceInfo:
        contract = self.pipeline.form.contract
        usable = SELECTIONS if self.pipeline.scorer is not None else SELECTIONS[:2]
        default = self.pipeline.how(self.selection)
        if default not in usable:
            raise ValueError(f"selection {default} without an edge model")
        return ServiceInfo(
            model=name,
            identity=contract.identity,
            contract=contract.to_json(),
            canvas=self.config.canvas,
            total_steps=self.config.total_steps,
            steps=self.config.run_steps,
            prompt_tokens=self.pipeline.model.context - self._least_canvas,
            selections=(default, *(how for how in usable if how != default)),
            budget=self.pipeline.scorer is not None,
            orders=ALGORITHMS,
            stops=tuple(STOPS),
            limits=self.limits,
        )

    @property
    def _least_canvas(self) -> int:
        return max(1, min(self.config.canvas, self.pipeline.model.context - 1) // LEAST_CANVAS)

    async def open(self) -> None:
        """Starts the engine and runs a full batch for two steps: it has to fit, and its time is the first
        measure of the rate.
        """
        self.engine.start()
        question = AnchorRequest((("user", "?"),), steps=min(2, self.config.total_steps), deadline=3600.0)

        async def once() -> None:
            async for _ in self.payloads(question):
                pass

        await asyncio.gather(*(once() for _ in range(self.limits.batch)))

    async def payloads(self, order: AnchorRequest) -> AsyncGenerator[Ready]:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def deliver(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._check(order)
        ids = await asyncio.to_thread(self._ids, order)
        job = self._job(order, ids)
        job.deliver = deliver
        self.engine.submit(job)
        try:
            while True:
                left = job.deadline - time.monotonic() + GRACE
                try:
                    event = await asyncio.wait_for(events.get(), max(0.0, left))
                except TimeoutError:
                    raise too_late(job.allowed) from None
                if isinstance(event, ServiceError):
                    raise event
                yield event
                if event.last:
                    return
        finally:
            self.engine.leave(job)

    def state(self) -> str | None:
        return None if self.engine.healthy else "the model's steps fail"

    def figures(self) -> dict[str, float]:
        load = self.engine.load()
        return {
            "waiting": load.waiting,
            "running": load.running,
            "choosing": load.choosing,
            "steps_left": load.steps_left,
            "steps_per_second": load.rate or 0.0,
        }

    async def close(self) -> None:
        await asyncio.to_thread(self.engine.close)

    def _check(self, order: AnchorRequest) -> None:
        """What can be refused before any work; raises ServiceError."""
        check_identity(order, self.facts)
        if order.select is not None and order.select not in self.facts.selections:
            raise ServiceError(
                422,
                "invalid_request",
                f"select to be one of {', '.join(self.facts.selections)}",
                repr(order.select),
                "Choose one of these: this service has no edge model beside it.",
            )
        how = order.select or self.facts.selections[0]
        if order.max_bytes is not None and how != EDGE_AWARE:
            raise ServiceError(
                422,
                "invalid_request",
                f"max_bytes with select {EDGE_AWARE} only",
                f"select {how}",
                "Leave max_bytes out, or choose the other selection.",
            )

    def _ids(self, order: AnchorRequest) -> list[int]:
        """Token ids of the conversation; raises ServiceError where it is too long."""
        form = self.pipeline.form
        messages = [{"role": role, "content": content} for role, content in order.messages]
        try:
            ids = form.tokenizer.encode(form.template.render(messages))
        except (UsageError, UnicodeError, TypeError) as error:
            raise refused(error) from None
        most = self.facts.prompt_tokens
        if len(ids) > most:
            raise ServiceError(
                413,
                "prompt_too_long",
                f"a prompt of at most {most} tokens, the template's included",
                f"{len(ids)}",
                "Shorten the prompt.",
            )
        return ids

    def _job(self, order: AnchorRequest, ids: list[int]) -> Job:
        total = self.config.total_steps
        if order.steps is not None and order.steps > total:
            raise ServiceError(
                422, "invalid_request", f"steps of at most {total}", f"{order.steps}", "Ask for fewer steps."
            )
        marks = [order.steps] if order.steps is not None else [steps_for(f, total) for f in order.fractions]
        marks = sorted(set(marks)) or [self.config.run_steps]
        try:
            config = replace(
                self.config,
                canvas=min(self.config.canvas, self.pipeline.model.context - len(ids)),
                steps=marks[-1],
                alg=order.order or self.config.alg,
                stop=order.stop or self.config.stop,
            )
            selection = Selection(
                order.select or self.selection.how,
                self.selection.walk,
                self.selection.max_bytes if order.max_bytes is None else order.max_bytes,
            )
            if not self.quota:
                config = self.pipeline.suited(config, self.pipeline.how(selection))
        except Exception as error:
            raise refused(error) from None
        allowed = self.limits.deadline if order.deadline is None else order.deadline
        return Job(
            tuple(ids), config, tuple(marks), selection, allowed, lambda event: None, whole=order.whole
        )


def check_identity(order: AnchorRequest, facts: ServiceInfo) -> None:
    """Raises ServiceError where the order is for another model (404) or another contract (409)."""
    if order.model is not None and order.model != facts.model:
        raise ServiceError(
            404,
            "unknown_model",
            f"model {facts.model}",
            repr(order.model),
            "Leave the model out, or ask the service that has it.",
        )
    if order.contract is not None and order.contract != facts.identity:
        raise ServiceError(
            409,
            "contract_mismatch",
            f"a device with contract {facts.identity}",
            order.contract,
            "Use the model bundle of this service's contract: see /v1/contract.",
        )
