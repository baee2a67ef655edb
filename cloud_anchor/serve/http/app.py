"""The HTTP interface: paths, status codes, headers and response bodies.

Responsible for turning HTTP requests into calls of a `Backend` and its payloads into responses. Not
responsible for models, threads or sockets.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.serve.batching.backend import AnchorRequest, Backend, ServiceInfo
from cloud_anchor.serve.batching.jobs import ServedPayload
from cloud_anchor.serve.errors import ServiceError, encode_json
from cloud_anchor.serve.http.error_handlers import BINARY, JSON, install_error_handlers
from cloud_anchor.serve.http.event_stream import EVENTS, EventStream, encode_event, while_present
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.http.middleware import RequestMiddleware
from cloud_anchor.serve.http.openapi import (
    COMMON_ERRORS,
    PAYLOAD_ERRORS,
    error_responses,
    install_openapi,
)
from cloud_anchor.serve.http.schema import (
    EVENT_SCHEMA,
    AnchorsBody,
    ContractAnswer,
    StateAnswer,
    StreamBody,
)
from cloud_anchor.serve.http.service import Service
from cloud_anchor.serve.http.telemetry import CONTENT_TYPE, Metrics
from cloud_anchor.serve.page import Page, install_page
from cloud_anchor.serve.settings import Limits


def to_json(served: ServedPayload, info: ServiceInfo) -> dict[str, Any]:
    """The fields of schema `AnchorsAnswer`."""
    return {
        "payload": base64.b64encode(served.data).decode("ascii"),
        "bytes": len(served.data),
        "anchors": served.anchors,
        "length": served.length,
        "step": served.step,
        "total_steps": served.total_steps,
        "canvas": served.canvas,
        "delta": served.delta,
        "last": served.last,
        "contract": info.identity,
    }


def create_app(
    backend: Backend,
    keys: ApiKeys,
    limits: Limits,
    metrics: Metrics | None = None,
    page: Page | None = None,
) -> RequestMiddleware:
    """The ASGI application; its `service` holds the state, `draining` among it.

    page: served at /; None for none.
    """
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
    install_error_handlers(app, metrics)
    install_openapi(app, backend, bool(len(keys)))
    if page is not None:
        install_page(app, service, page)

    def validated(body: AnchorsBody | StreamBody) -> AnchorRequest:
        """The request, within the service's limits; raises ServiceError."""
        request = body.to_request()
        limits = backend.info.limits
        for what, found, most in (
            ("deadline", request.deadline or 0, limits.deadline),
            ("messages", len(request.messages), limits.messages),
            ("fractions", len(request.fractions), limits.payloads),
        ):
            if found > most:
                raise ServiceError(
                    422, "invalid_request", f"{what}: at most {most:g}", f"{found:g}", "Ask for less."
                )
        return request

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
            **error_responses(*PAYLOAD_ERRORS),
        },
    )
    async def anchors(request: Request, body: Annotated[AnchorsBody, Body()]) -> Response:
        """One payload for a prompt: the anchors after a share of the denoising steps."""
        async with service.admitted(), aclosing(backend.payloads(validated(body))) as payloads:
            served = await while_present(request.receive, anext(payloads))
        metrics.payload_bytes.observe(len(served.data))
        if _wants_json(request.headers.get("accept", "")):
            return Response(encode_json(to_json(served, backend.info)), media_type=JSON)
        return Response(served.data, media_type=BINARY)

    @app.post(
        "/v1/anchors/stream",
        response_class=Response,
        responses={
            200: {
                "description": "Events `payload` (data as AnchorsAnswer), then `done`, or `error`.",
                "content": {EVENTS: {"schema": EVENT_SCHEMA}},
            },
            **error_responses(*PAYLOAD_ERRORS),
        },
    )
    async def stream(request: Request, body: Annotated[StreamBody, Body()]) -> Response:
        """A payload at the first share, then what later steps add to it, as server-sent events."""
        payloads = _admitted_payloads(service, validated(body))
        try:
            first = await while_present(request.receive, anext(payloads))
        except BaseException:
            await payloads.aclose()
            raise

        async def events() -> AsyncGenerator[bytes]:
            async with aclosing(payloads):
                served = first
                try:
                    while True:
                        metrics.payload_bytes.observe(len(served.data))
                        yield encode_event("payload", to_json(served, backend.info))
                        served = await anext(payloads)
                except StopAsyncIteration:
                    yield encode_event("done", {})
                except ServiceError as error:
                    metrics.refusals.labels(error.code).inc()
                    yield encode_event("error", error.body()["error"])

        return EventStream(events())

    @app.get("/v1/contract", response_model=ContractAnswer, responses=error_responses(401, *COMMON_ERRORS))
    async def contract() -> Response:
        """Contract, plan and limits, which a device needs before its first request."""
        info = backend.info
        known = {name: getattr(info, name) for name in ContractAnswer.model_fields if hasattr(info, name)}
        return Response(encode_json(known | {"deadline": info.limits.deadline}), media_type=JSON)

    @app.get("/healthz", response_model=StateAnswer, responses=error_responses(*COMMON_ERRORS))
    async def healthz() -> dict[str, str]:
        """Liveness: 200 while the process responds."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=StateAnswer, responses=error_responses(*COMMON_ERRORS, 503))
    async def readyz() -> dict[str, str]:
        """Readiness: 200 while requests are admitted, else 503."""
        reason = service.unavailable()
        if reason is not None:
            raise reason
        return {"status": "ready"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "The text format of Prometheus.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **error_responses(*COMMON_ERRORS),
        },
    )
    async def figures() -> Response:
        """Metrics for Prometheus."""
        text = metrics.text(backend.figures() | {"requests": service.open_requests})
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return RequestMiddleware(app, service, keys, limits, metrics)


async def _admitted_payloads(service: Service, request: AnchorRequest) -> AsyncGenerator[ServedPayload]:
    async with service.admitted(), aclosing(service.backend.payloads(request)) as payloads:
        async for served in payloads:
            yield served


def _wants_json(accept: str) -> bool:
    """True where JSON is accepted and bytes are not named; clients that name neither get bytes."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in kinds and BINARY not in kinds
