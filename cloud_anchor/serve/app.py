"""The HTTP interface: paths, statuses, headers, and the description of all that.

Knows FastAPI and a `Backend`. Does not know models, threads or sockets.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from cloud_anchor.serve.bounds import Bounds, encode_json
from cloud_anchor.serve.errors import ServiceError, internal, stopping
from cloud_anchor.serve.jobs import Ready
from cloud_anchor.serve.keys import Keys
from cloud_anchor.serve.metrics import CONTENT_TYPE, Metrics
from cloud_anchor.serve.orders import Backend, Facts, Order
from cloud_anchor.serve.schema import (
    AnchorsAnswer,
    AnchorsRequest,
    ContractAnswer,
    ErrorAnswer,
    StateAnswer,
    StreamRequest,
    describe,
)
from cloud_anchor.serve.settings import Limits

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

BINARY, JSON, EVENTS = "application/octet-stream", "application/json", "text/event-stream"
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


class ClientLeftError(Exception):
    """Nobody waits for the answer."""


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
            await while_present(receive, write())


def answer_of(ready: Ready, facts: Facts) -> dict[str, Any]:
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


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    texts = {
        400: "Not JSON.",
        401: "No key, or an unknown one.",
        404: "Another model than the one served.",
        408: "The body came too slowly.",
        409: "Another contract than the service's.",
        413: "A body or a prompt that is too long.",
        415: "Another content type than application/json.",
        422: "A field that is missing, unknown or out of range.",
        500: "A fault of the service.",
        503: "Overloaded, stopping or not ready: Retry-After says when to come back.",
        504: "The deadline has passed.",
    }
    return {status: {"model": ErrorAnswer, "description": texts[status]} for status in statuses}


ASKING = (400, 401, 404, 408, 409, 413, 415, 422, 500, 503, 504)
SMALL = (408, 413, 500)
KEY = HTTPBearer(auto_error=False, description="An API key, where the service has any.")


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
    _handle_errors(app, metrics)
    _describe(app, backend, bool(len(keys)))

    def read(body: AnchorsRequest | StreamRequest) -> Order:
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
            **_refusals(*ASKING),
        },
    )
    async def anchors(request: Request, body: Annotated[AnchorsRequest, Body()]) -> Response:
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
                "content": {EVENTS: {"schema": {"type": "string"}}},
            },
            **_refusals(*ASKING),
        },
    )
    async def stream(request: Request, body: Annotated[StreamRequest, Body()]) -> Response:
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

    @app.get("/v1/contract", response_model=ContractAnswer, responses=_refusals(401, *SMALL))
    async def contract() -> Response:
        """What a device has to know before it asks."""
        facts = backend.facts
        known = {name: getattr(facts, name) for name in ContractAnswer.model_fields if hasattr(facts, name)}
        return Response(encode_json(known | {"deadline": facts.limits.deadline}), media_type=JSON)

    @app.get("/healthz", response_model=StateAnswer, responses=_refusals(*SMALL))
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=StateAnswer, responses=_refusals(*SMALL, 503))
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
            **_refusals(*SMALL),
        },
    )
    async def figures() -> Response:
        """Figures for Prometheus."""
        text = metrics.text(backend.figures() | {"requests": service.open_requests})
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return Bounds(app, service, keys, limits, metrics)


async def _taken(service: Service, order: Order) -> AsyncGenerator[Ready]:
    async with service.taken(), aclosing(service.backend.payloads(order)) as payloads:
        async for ready in payloads:
            yield ready


def _wants_json(accept: str) -> bool:
    """Whether JSON is named and bytes are not; clients that name neither get bytes."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in kinds and BINARY not in kinds


def _handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """Every error in one form."""

    def refuse(error: ServiceError, headers: dict[str, str] | None = None) -> Response:
        metrics.refusals.labels(error.code).inc()
        return Response(
            encode_json(error.body()), error.status, error.headers() | (headers or {}), media_type=JSON
        )

    @app.exception_handler(ServiceError)
    async def known(_: Request, error: ServiceError) -> Response:
        return refuse(error)

    @app.exception_handler(ClientLeftError)
    async def left(_: Request, error: ClientLeftError) -> Response:
        metrics.left.inc()
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refuse(_explain(request, error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return refuse(_explain_http(request, error, headers), headers)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        return refuse(internal(error))


def _explain(request: Request, error: RequestValidationError) -> ServiceError:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        return ServiceError(
            415,
            "unsupported_media_type",
            f"Content-Type: {JSON}",
            repr(kind) if kind else "none",
            "Send JSON and say so.",
        )
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        found = str(first.get("ctx", {}).get("error", "another text"))
        return ServiceError(
            400,
            "malformed_json",
            "a JSON object",
            f"{found} at character {first['loc'][-1]}",
            "Send valid JSON.",
        )
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    text = str(first["msg"]).removeprefix("Value error, ")
    expected, _, found = text.removeprefix("expected ").partition(", found ")
    if not found:
        found = "no such field" if first["type"] == "missing" else f"{first.get('input')!r:.80}"
    more = f" ({len(error.errors())} such faults in all)" if len(error.errors()) > 1 else ""
    remedy = "Leave this field out." if first["type"] == "extra_forbidden" else "Correct this field."
    return ServiceError(422, "invalid_request", f"{where}: {expected}", found + more, remedy)


def _explain_http(request: Request, error: HTTPException, headers: dict[str, str]) -> ServiceError:
    found = f"{request.method} {request.url.path:.80}"
    if error.status_code == 404:
        remedy = "See /openapi.json."
        return ServiceError(404, "unknown_path", "one of the service's paths", found, remedy)
    if error.status_code == 405:
        allowed = headers.get("allow") or headers.get("Allow") or "another method"
        return ServiceError(405, "method_not_allowed", f"method {allowed}", found, "Use that method.")
    if error.status_code == 400:
        return ServiceError(400, "malformed_json", "a JSON object", "another text", "Send valid JSON.")
    return ServiceError(error.status_code, "http_error", "another request", str(error.detail), "Change it.")


def _describe(app: FastAPI, backend: Backend, locked: bool) -> None:
    """Makes the OpenAPI description what the service does, and not what FastAPI supposes."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            parts = schema["components"]["schemas"]
            for unused in ("HTTPValidationError", "ValidationError"):
                parts.pop(unused, None)
            parts["AnchorsAnswer"] = AnchorsAnswer.model_json_schema()
            if locked:
                schema["components"]["securitySchemes"] = {"key": KEY.model.model_dump(exclude_none=True)}
                for path, operations in schema["paths"].items():
                    if path.startswith("/v1/"):
                        for operation in operations.values():
                            operation["security"] = [{"key": []}]
            app.openapi_schema = describe(schema, backend.facts)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
