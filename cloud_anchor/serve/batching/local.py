"""Backend with a batch engine in this process: from a request to a job, and the errors of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice
from math import ceil
from typing import cast

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.protocol import AskedModel
from cloud_anchor.selection.select import EDGE_AWARE, SELECTIONS, Selection
from cloud_anchor.serve.batching.asking import AskingEngine
from cloud_anchor.serve.batching.backend import CODECS, AnchorRequest, ServiceInfo
from cloud_anchor.serve.batching.engine import PADDING, BatchEngine, StepObserver
from cloud_anchor.serve.batching.jobs import CanvasStep, ChainBytes, Job, JobEvent, ServedPayload
from cloud_anchor.serve.errors import ServiceError, invalid, refused, too_late
from cloud_anchor.serve.settings import MIN_CANVAS_DIVISOR, Limits
from edge_runtime.errors import UsageError
from edge_runtime.text.chat import as_messages
from edge_runtime.text.prompt_form import PromptForm

WARM_UP_SECONDS = 2.0
"""For answers that tell how many steps they run; those of a large model are cut off, and it learns later."""

WARM_UP_PROMPTS = ("?", "Where is it?", "Who are you?", "Describe a town and its river.")

GRACE = 2.0
"""Seconds after a deadline in which the engine may still deliver its own error."""


class LocalBackend:
    """A `Backend` over one `BatchEngine`.

    config: of a full run; its steps are what a request gets by default.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: DenoiseConfig,
        limits: Limits,
        selection: Selection | None = None,
        on_step: StepObserver = lambda rows, seconds: None,
        name: str | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.config = config
        self.limits = limits
        self.selection = selection or Selection()
        asked = isinstance(pipeline.model, AskedModel)
        self.engine = (AskingEngine if asked else BatchEngine)(pipeline, limits, on_step)
        self.info = self._info(name or pipeline.model.source)

    def _info(self, name: str) -> ServiceInfo:
        contract = self.pipeline.form.contract
        usable = [name for name in SELECTIONS if self._offers(name)]
        default = str(self.pipeline.resolve(self.config, self.selection)[1].name)
        return ServiceInfo(
            model=name,
            identity=contract.identity,
            contract=contract.to_json(),
            canvas=self.config.canvas,
            total_steps=self.config.total_steps,
            steps=self.config.run_steps,
            prompt_tokens=self._context - self._min_canvas,
            selections=(default, *(how for how in usable if how != default)),
            codecs=CODECS if self.pipeline.edge is not None else CODECS[:1],
            limits=self.limits,
        )

    def _offers(self, name: str) -> bool:
        """False for a selection that needs an edge model or committed tokens, where there are none."""
        try:
            self.pipeline.resolve(self.config, Selection(name))
        except RequestError:
            return False
        return True

    @property
    def _context(self) -> int:
        """Tokens of prompt and canvas that both models take."""
        scorer = self.pipeline.scorer
        edge = None if scorer is None else scorer.context
        return min(self.pipeline.model.context, edge or self.pipeline.model.context)

    @property
    def _min_canvas(self) -> int:
        return max(1, min(self.config.canvas, self._context - 1) // MIN_CANVAS_DIVISOR)

    async def open(self) -> None:
        """Start the engine and warm it up with full batches.

        First a step: all has to fit in memory, and it is slow. Then two more, which tell the admission how
        long one of a full batch takes, and whole answers, which tell how many they run.
        """
        self.engine.start()
        if isinstance(self.pipeline.model, AskedModel):  # which others use: one answer, to see that it works
            return await self._warm_up(self.config.run_steps, 1)
        await self._warm_up(1)
        self.engine.forget_speed()
        await self._warm_up(min(2, self.config.total_steps))
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._warm_up(self.config.total_steps), WARM_UP_SECONDS)

    async def _warm_up(self, steps: int, answers: int | None = None) -> None:
        async def answer(prompt: str) -> None:
            async for _ in self.payloads(AnchorRequest(as_messages(prompt), steps=steps, deadline=3600.0)):
                pass

        prompts = islice(cycle(WARM_UP_PROMPTS), answers or self.limits.batch)
        await asyncio.gather(*map(answer, prompts))

    def payloads(self, request: AnchorRequest) -> AsyncGenerator[ServedPayload]:
        return cast("AsyncGenerator[ServedPayload]", self.watch(request, steps=False))

    async def watch(
        self, request: AnchorRequest, *, steps: bool = True
    ) -> AsyncGenerator[CanvasStep | ServedPayload]:
        """The run after every step, then the payload of the request's last step; otherwise as `payloads`."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[JobEvent] = asyncio.Queue()

        def deliver(event: JobEvent) -> None:
            with suppress(RuntimeError):  # the loop is closed: no client is left
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._check(request)
        ids = await asyncio.to_thread(self._ids, self.pipeline.model_form, request)
        job = self._job(request, ids, deliver)
        if steps:
            job.watched, job.payload_steps = True, tuple(range(1, job.payload_steps[-1] + 1))
        if self.pipeline.translation:
            job.edge_prompt_ids = tuple(await asyncio.to_thread(self._ids, self.pipeline.form, request))
        self.engine.submit(job)
        try:
            while True:
                left = job.deadline - time.monotonic() + GRACE
                try:
                    event = await asyncio.wait_for(events.get(), max(0.0, left))
                except TimeoutError:
                    raise too_late(job.time_limit) from None
                if isinstance(event, ServiceError):
                    raise event
                yield event
                if isinstance(event, ServedPayload) and event.last:
                    return
        finally:
            self.engine.cancel(job)

    def state(self) -> str | None:
        return None if self.engine.healthy else "the model's steps fail"

    def broken(self) -> str | None:
        return "a model that no longer works" if self.engine.broken else None

    def figures(self) -> dict[str, float]:
        return self.engine.figures()

    async def close(self) -> None:
        await asyncio.to_thread(self.engine.close)

    def _check(self, request: AnchorRequest) -> None:
        """Raises ServiceError for a request that this service does not support."""
        check_identity(request, self.info)
        for what, found, known in (
            ("select", request.select, self.info.selections),
            ("codec", request.codec, self.info.codecs),
        ):
            if found is not None and found not in known:
                remedy = "Choose one of these: it has no others."
                raise invalid(f"{what} to be one of {', '.join(known)}", repr(found), remedy)
        how = request.select or self.info.selections[0]
        if request.max_bytes is not None and not SELECTIONS[how].walks:
            remedy = "Leave max_bytes out, or choose the other selection."
            raise invalid(f"max_bytes with select {EDGE_AWARE} only", f"select {how}", remedy)

    def _ids(self, form: PromptForm, request: AnchorRequest) -> list[int]:
        """Token ids of the conversation; raises ServiceError where it cannot be rendered or is too long."""
        try:
            ids = form.ids(request.messages)
        except UsageError as error:
            raise refused(error) from None
        most = self.info.prompt_tokens
        if len(ids) > most:
            expected = f"a prompt of at most {most} tokens, the template's included"
            raise ServiceError(413, "prompt_too_long", expected, f"{len(ids)}", "Shorten the prompt.")
        return ids

    def _job(self, request: AnchorRequest, ids: list[int], deliver: Callable[[JobEvent], None]) -> Job:
        """The engine's job for a request; raises ServiceError for options that do not fit the model."""
        total = self.config.total_steps
        shares = sorted({steps_for(fraction, total) for fraction in request.fractions})
        payload_steps = [request.steps] if request.steps is not None else shares or [self.config.run_steps]
        try:
            config = replace(
                self.config,
                canvas=min(self.config.canvas, self._context - len(ids)),
                steps=payload_steps[-1],
            )
            most = self.selection.max_bytes if request.max_bytes is None else request.max_bytes
            selection = Selection(
                request.select or self.selection.name,
                self.selection.config,
                None if request.chain else most,  # a chain carries the whole selection
            )
            config, selection = self.pipeline.resolve(config, selection)
        except Exception as error:
            raise refused(error) from None
        time_limit = self.limits.deadline if request.deadline is None else request.deadline
        return Job(
            ids,
            config,
            tuple(payload_steps),
            selection,
            time_limit,
            deliver,
            codec=request.codec or self.info.codecs[0],
            confidence=request.confidence,
            self_contained=request.self_contained,
            client=request.client,
            rows=ceil((len(ids) + config.canvas) / (PADDING * self.config.canvas)),
            chain=ChainBytes(most, self.limits.payloads) if request.chain and most is not None else None,
        )


def check_identity(request: AnchorRequest, info: ServiceInfo) -> None:
    """Raises ServiceError (409) where the request is for another contract."""
    if request.contract is not None and request.contract != info.identity:
        expected = f"a device with contract {info.identity}"
        remedy = "Use the model bundle of this service's contract."
        raise ServiceError(409, "contract_mismatch", expected, request.contract, remedy)
