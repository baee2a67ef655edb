"""Trace: one question answered with two selections and by the edge model alone, every step an event.

Responsible for running the cloud's part and the device's part of each and for the events that the page shows
of them. Not responsible for HTTP or for how they are shown (see `page`).

    plan                          once: sizes, and the columns
    step, payload, reasons        of a column with a payload: the canvas after each step; the bytes; why
    token, end                    of every column: the device's text
    error                         of a column: its last event
    done                          once

The device's part runs on this machine, one answer at a time, with the bundle that devices have: it reads the
payload's bytes as a device does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any, NamedTuple

from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.scorer import Scorer
from cloud_anchor.selection.select import EDGE_AWARE, PAPER
from cloud_anchor.serve.batching.backend import AnchorRequest
from cloud_anchor.serve.batching.forecast import InProgress
from cloud_anchor.serve.batching.jobs import CanvasStep
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.errors import ServiceError, internal, overloaded, refused, too_late
from edge_runtime.decode.forced import Source
from edge_runtime.decode.streams import aiter_tokens
from edge_runtime.errors import EdgeError
from edge_runtime.runtime import EdgeRuntime, FillRequest
from edge_runtime.text.chat import as_messages
from edge_runtime.text.tokenizer import Tokenizer
from payload import AnchorSet, PayloadError

log = logging.getLogger("cloud_anchor.serve")

ALONE = "alone"
COLUMNS = (EDGE_AWARE, PAPER, ALONE)
"""What a trace shows side by side."""

MAX_TRACES = 4
"""Traces at the same time; each holds two rows of the batch, and they take turns on one edge model."""

BACKLOG = 16
"""Events that wait for a slow reader; beyond them the columns wait."""


class TraceEvent(NamedTuple):
    """One event: its name, and its data as a JSON object. Of a column: `column` in the data."""

    name: str
    data: dict[str, Any]


class Tracer:
    """Makes the traces of one service. `open_traces`: those in progress."""

    def __init__(self, backend: LocalBackend, edge: EdgeRuntime, most: int = MAX_TRACES) -> None:
        """edge: a runtime of its own, of the bundle that the backend's payloads are for."""
        self._backend = backend
        self.edge = edge
        self.columns = [name for name in COLUMNS if name == ALONE or name in backend.info.selections]
        self._most = most
        self._device = asyncio.Lock()
        self.open_traces = InProgress()

    async def events(
        self, prompt: str, fraction: float | None = None, client: str = "", *, device: bool = True
    ) -> AsyncGenerator[TraceEvent]:
        """The events of one question. Closing the generator ends its work within one pass of each model.

        fraction: share of the steps, by default the service's. client: who asks. device: False leaves the
        device's part to who asks. Raises ServiceError (503) before the first event where too many traces are
        in progress; later errors are events.
        """
        if len(self.open_traces) >= self._most:
            expected = f"fewer than {self._most} questions on the page at a time"
            raise overloaded(expected, f"{len(self.open_traces)}", self.open_traces.seconds_left())
        events: asyncio.Queue[TraceEvent | None] = asyncio.Queue(BACKLOG)
        shares = () if fraction is None else (fraction,)
        request = AnchorRequest(as_messages(prompt), shares, client=client)
        tasks = [asyncio.ensure_future(self._column(name, request, device, events)) for name in self.columns]
        try:
            with self.open_traces.one():
                yield self._plan()
                limit = self._backend.limits.deadline
                end = asyncio.get_running_loop().time() + limit
                running = len(tasks)
                while running:
                    try:
                        async with asyncio.timeout_at(end):
                            event = await events.get()
                    except TimeoutError:
                        yield TraceEvent("error", too_late(limit).body()["error"])
                        return
                    if event is None:
                        running -= 1
                    else:
                        yield event
                yield TraceEvent("done", {})
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _plan(self) -> TraceEvent:
        info = self._backend.info
        # Where the vocabularies differ a payload is of a translated run: its positions are other ones.
        aligned = self._backend.pipeline.translation is None
        known = {"canvas": info.canvas, "total_steps": info.total_steps, "aligned": aligned}
        scorer, guard = self._backend.pipeline.scorer, self._backend.selection.config.guard
        guard = scorer.guard if guard is None and scorer is not None else guard
        return TraceEvent("plan", {"columns": self.columns, **known, "guard": guard})

    async def _column(
        self, name: str, request: AnchorRequest, device: bool, events: asyncio.Queue[TraceEvent | None]
    ) -> None:
        """Puts the events of a column, then None."""
        try:
            async with aclosing(self._answer(name, request, device)) as answer:
                async for event in answer:
                    await events.put(TraceEvent(event.name, {"column": name, **event.data}))
        except Exception as error:
            await events.put(TraceEvent("error", {"column": name, **_error(error).body()["error"]}))
        await events.put(None)

    async def _answer(self, name: str, request: AnchorRequest, device: bool) -> AsyncGenerator[TraceEvent]:
        data, prompt = None, request.messages[0].content
        if name != ALONE:
            async with aclosing(self._backend.watch(replace(request, select=name))) as cloud:
                async for event in cloud:
                    if isinstance(event, CanvasStep):
                        yield TraceEvent(
                            "step", draft_of(event.run, self._backend.pipeline.model_form.tokenizer)
                        )
                    else:
                        data = event.data
                        names = ("anchors", "length", "step", "total_steps")
                        known = {each: getattr(event, each) for each in names}
                        yield TraceEvent("payload", {"hex": data.hex(), "bytes": len(data), **known})
        if not device:
            return
        async with self._device, aclosing(aiter_tokens(self._device_events(prompt, data))) as written:
            async for shown in written:
                yield shown

    def _device_events(self, prompt: str, data: bytes | None) -> Generator[TraceEvent]:
        """The device's part, from the payload's bytes or without any; runs the edge model."""
        edge = self.edge
        if data is None:
            nothing = AnchorSet.empty(self._backend.info.canvas, edge.bundle.contract)
            request = FillRequest(edge.prompt_ids(prompt), nothing)
        else:
            request = edge.read(data, prompt)
            places = request.anchors.by_position.items()
            sent = [[position, _text(edge.bundle.tokenizer, id_)] for position, id_ in places]
            yield TraceEvent("sent", {"sent": sent, "doubt": request.doubt})
        answer = edge.fill(request)
        stream = edge.text_stream()
        ids = []
        with closing(answer):
            for token in answer:
                ids.append(token.id)
                text = stream.push(token.id)
                anchor = token.source is Source.ANCHOR
                yield TraceEvent("token", {"position": token.position, "text": text, "anchor": anchor})
        if rest := stream.flush():
            yield TraceEvent("token", {"position": len(ids), "text": rest, "anchor": False})
        if len(request.anchors):
            yield self._reasons(request, ids)
        yield TraceEvent("end", {"tokens": len(ids), "passes": answer.stats.passes})

    def _reasons(self, request: FillRequest, ids: Sequence[int]) -> TraceEvent:
        """What the edge model would have written where each anchor stands, given all before it.

        [position, text, whether it is the anchor's token, margin over the second most probable in logits]
        """
        edge, anchors = self.edge, request.anchors.by_position
        scorer = Scorer(edge.model, edge.bundle.contract.eos_ids)
        scores = scorer.score(request.prompt_ids, ids)
        greedy, margin, tokenizer = scores.greedy.tolist(), scores.margin.tolist(), edge.bundle.tokenizer
        reasons = [
            [at, _text(tokenizer, greedy[at]), greedy[at] == id_, round(margin[at], 2)]
            for at, id_ in anchors.items()
            if at < len(ids)
        ]
        return TraceEvent("reasons", {"reasons": reasons})


def draft_of(run: Denoised, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the model has written after a step, as the fields of schema `CanvasDraft`."""
    ids = run.predicted_answer
    columns = zip(ids, run.certainty or run.confidence, run.when, strict=False)
    return {
        "step": run.steps,
        "total_steps": run.total_steps,
        "canvas": run.canvas,
        "committed": sum(map(bool, run.when)),
        "text": tokenizer.decode(ids),
        "tokens": [[_text(tokenizer, id_), round(sure, 3), when] for id_, sure, when in columns],
    }


def _text(tokenizer: Tokenizer, id_: int) -> str:
    """A token as text; that of a special one is its name, of a piece of a character U+FFFD."""
    return tokenizer.token_bytes(id_).decode("utf-8", "replace")


def _error(error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, EdgeError | PayloadError):
        return refused(error)
    log.error("a trace failed", exc_info=error)
    return internal(error)
