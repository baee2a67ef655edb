"""The HTTP interface: paths, statuses, headers, and the description of all that.

Knows FastAPI and a `Backend`. Does not know models, threads or sockets.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.serve.backend import AnchorRequest, Backend, ServiceInfo
from cloud_anchor.serve.bounds import Bounds, encode_json
from cloud_anchor.serve.errors import ServiceError, stopping
from cloud_anchor.serve.faults import BINARY, JSON, ClientLeftError, handle_errors
from cloud_anchor.serve.jobs import Ready
from cloud_anchor.serve.keys import Keys
from cloud_anchor.serve.openapi import ASKING, SMALL, describe_app, refusals
from cloud_anchor.serve.schema import (
    EVENT_SCHEMA,
    AnchorsBody,
    ContractAnswer,
    StateAnswer,
    StreamBody,
)
from cloud_anchor.serve.settings import Limits
from cloud_anchor.serve.telemetry import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
T = TypeVar("T")


class Service:
    """The state behind the paths. `draining`: no new requests are taken, those taken are finished."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        self.backend = backend
        self.metrics = metrics
        self.draining = False
        self.open_requests = 0

    def trouble(self) -> ServiceError | None:
        """Why no request can be taken now, if so."""
        if self.draining:
            return stopping()
        state = self.backend.state()
        if state is None:
            return None
        return ServiceError(503, "not_ready", "a service that is ready", state, "Try again.", 5.0)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Around every request that makes payloads; raises ServiceError where none is taken."""
        trouble = self.trouble()
        if trouble is not None:
            raise trouble
        self.open_requests += 1
        try:
            yield
        finally:
            self.open_requests -= 1


async def while_present(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` gives; where the client leaves before, cancels it and raises ClientLeftError."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeftError
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


class EventStream(Response):
    """Server-sent events of an order whose first payload is there already."""

    media_type = EVENTS

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for event in self.events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async with aclosing(self.events):
            with suppress(ClientLeftError):
                await while_present(receive, write())


def answer_of(ready: Ready, facts: ServiceInfo) -> dict[str, Any]:
    return {
        "payload": base64.b64encode(ready.data).decode("ascii"),
        "bytes": len(ready.data),
        "anchors": ready.anchors,
        "length": ready.length,
        "step": ready.step,
        "total_steps": ready.total_steps,
        "canvas": ready.canvas,
        "delta": ready.delta,
        "last": ready.last,
        "contract": facts.identity,
    }


def event(name: str, data: object) -> bytes:
    return b"event: " + name.encode("ascii") + b"\ndata: " + encode_json(data) + b"\n\n"


def create_app(backend: Backend, keys: Keys, limits: Limits, metrics: Metrics | None = None) -> Bounds:
    """The ASGI application; its `service` says when it no longer takes requests."""
    metrics = metrics or Metrics()
    service = Service(backend, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await backend.open()
        try:
            yield
        finally:
            await backend.close()

    app = FastAPI(
        title="Inverse speculation",
        description="Payloads of anchors: the cloud's part of an answer, to be finished on a device.",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    handle_errors(app, metrics)
    describe_app(app, backend, bool(len(keys)))

    def read(body: AnchorsBody | StreamBody) -> AnchorRequest:
        order = body.to_order()
        facts = backend.facts
        for what, found, most in (
            ("deadline", order.deadline or 0, facts.limits.deadline),
            ("messages", len(order.messages), facts.limits.messages),
            ("fractions", len(order.fractions), facts.limits.payloads),
        ):
            if found > most:
                raise ServiceError(
                    422, "invalid_request", f"{what}: at most {most:g}", f"{found:g}", "Ask for less."
                )
        return order

    @app.post(
        "/v1/anchors",
        response_class=Response,
        responses={
            200: {
                "description": "The payload, or JSON with it where application/json is asked for (Accept).",
                "content": {
                    BINARY: {"schema": {"type": "string", "format": "binary"}},
                    JSON: {"schema": {"$ref": "#/components/schemas/AnchorsAnswer"}},
                },
            },
            **refusals(*ASKING),
        },
    )
    async def anchors(request: Request, body: Annotated[AnchorsBody, Body()]) -> Response:
        """One payload for a prompt: the anchors after a share of the denoising steps."""
        async with service.taken(), aclosing(backend.payloads(read(body))) as payloads:
            ready = await while_present(request.receive, anext(payloads))
        metrics.payload_bytes.observe(len(ready.data))
        if _wants_json(request.headers.get("accept", "")):
            return Response(encode_json(answer_of(ready, backend.facts)), media_type=JSON)
        return Response(ready.data, media_type=BINARY)

    @app.post(
        "/v1/anchors/stream",
        response_class=Response,
        responses={
            200: {
                "description": "Events `payload` (data as AnchorsAnswer), then `done`, or `error`.",
                "content": {EVENTS: {"schema": EVENT_SCHEMA}},
            },
            **refusals(*ASKING),
        },
    )
    async def stream(request: Request, body: Annotated[StreamBody, Body()]) -> Response:
        """A payload at the first share, then what later steps add to it, as server-sent events."""
        payloads = _taken(service, read(body))
        try:
            first = await while_present(request.receive, anext(payloads))
        except BaseException:
            await payloads.aclose()
            raise

        async def events() -> AsyncGenerator[bytes]:
            async with aclosing(payloads):
                ready = first
                try:
                    while True:
                        metrics.payload_bytes.observe(len(ready.data))
                        yield event("payload", answer_of(ready, backend.facts))
                        ready = await anext(payloads)
                except StopAsyncIteration:
                    yield event("done", {})
                except ServiceError as error:
                    metrics.refusals.labels(error.code).inc()
                    yield event("error", error.body()["error"])

        return EventStream(events())

    @app.get("/v1/contract", response_model=ContractAnswer, responses=refusals(401, *SMALL))
    async def contract() -> Response:
        """What a device has to know before it asks."""
        facts = backend.facts
        known = {name: getattr(facts, name) for name in ContractAnswer.model_fields if hasattr(facts, name)}
        return Response(encode_json(known | {"deadline": facts.limits.deadline}), media_type=JSON)

    @app.get("/healthz", response_model=StateAnswer, responses=refusals(*SMALL))
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=StateAnswer, responses=refusals(*SMALL, 503))
    async def readyz() -> dict[str, str]:
        """Whether requests are taken."""
        trouble = service.trouble()
        if trouble is not None:
            raise trouble
        return {"status": "ready"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "The text format of Prometheus.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **refusals(*SMALL),
        },
    )
    async def figures() -> Response:
        """Figures for Prometheus."""
        text = metrics.text(backend.figures() | {"requests": service.open_requests})
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return Bounds(app, service, keys, limits, metrics)


async def _taken(service: Service, order: AnchorRequest) -> AsyncGenerator[Ready]:
    async with service.taken(), aclosing(service.backend.payloads(order)) as payloads:
        async for ready in payloads:
            yield ready


def _wants_json(accept: str) -> bool:
    """Whether JSON is named and bytes are not; clients that name neither get bytes."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in kinds and BINARY not in kinds
