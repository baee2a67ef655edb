"""The paths of payloads, one or a stream: from a request's body to a `Backend`, and back."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response

from cloud_anchor.serve.batching.backend import AnchorRequest, Backend, ServiceInfo, require_ready
from cloud_anchor.serve.batching.jobs import ServedPayload
from cloud_anchor.serve.errors import ServiceError, encode_json, invalid
from cloud_anchor.serve.http.accounts import Account, account_of
from cloud_anchor.serve.http.error_handlers import BINARY, JSON
from cloud_anchor.serve.http.openapi import PAYLOAD_ERRORS, error_responses, schema_of
from cloud_anchor.serve.http.schema import AnchorsRequest, StreamRequest, event_schema
from cloud_anchor.serve.http.telemetry import Metrics
from edge_runtime.endpoint.presence import EVENTS, encode_event, event_stream, while_present

EVENT_DATA = "Of `payload` an AnchorsAnswer in JSON, of `error` what an ErrorAnswer holds."


def install_payloads(app: FastAPI, backend: Backend, metrics: Metrics) -> None:
    """Adds /v1/anchors and /v1/anchors/stream to an application."""

    @app.post(
        "/v1/anchors",
        response_class=Response,
        responses={
            200: {
                "description": "The payload, or JSON with it where application/json is asked for (Accept).",
                "content": {
                    BINARY: {"schema": {"type": "string", "format": "binary"}},
                    JSON: schema_of("AnchorsAnswer"),
                },
            },
            **error_responses(*PAYLOAD_ERRORS),
        },
    )
    async def anchors(request: Request, body: Annotated[AnchorsRequest, Body()]) -> Response:
        """One payload for a prompt: the anchors after a share of the denoising steps."""
        account = account_of(request.scope)
        asked = within_limits(body.to_request(), backend.info, account.client)
        require_ready(backend)
        async with aclosing(backend.payloads(asked)) as payloads:
            served = await while_present(request.receive, anext(payloads))
            account.steps = served.step
        metrics.payload_bytes.observe(len(served.data))
        if _wants_json(request.headers.get("accept", "")):
            return Response(encode_json(_to_json(served, backend.info)), media_type=JSON)
        return Response(served.data, media_type=BINARY)

    @app.post(
        "/v1/anchors/stream",
        response_class=Response,
        responses={
            200: {
                "description": "Events `payload` (data as AnchorsAnswer), then `done`, or `error`.",
                "content": {EVENTS: {"schema": event_schema(EVENT_DATA, "payload", "error", "done")}},
            },
            **error_responses(*PAYLOAD_ERRORS),
        },
    )
    async def stream(request: Request, body: Annotated[StreamRequest, Body()]) -> Response:
        """A payload at the first share, then what later steps add to it, as server-sent events."""
        account = account_of(request.scope)
        asked = within_limits(body.to_request(), backend.info, account.client)
        return await event_stream(request.receive, _events(backend, metrics, asked, account))


async def _events(
    backend: Backend, metrics: Metrics, asked: AnchorRequest, account: Account
) -> AsyncGenerator[bytes]:
    """The events of a stream. An error before the first payload is raised, a later one is an event."""
    try:
        require_ready(backend)
        async with aclosing(backend.payloads(asked)) as payloads:
            async for served in payloads:
                account.steps = served.step
                metrics.payload_bytes.observe(len(served.data))
                yield encode_event("payload", _to_json(served, backend.info))
        yield encode_event("done", {})
    except ServiceError as error:
        if not account.steps:
            raise
        metrics.refusals.labels(error.code).inc()
        yield encode_event("error", error.body()["error"])


def within_limits(request: AnchorRequest, info: ServiceInfo, client: str) -> AnchorRequest:
    """The request, as this client's; raises ServiceError where it asks for more than the service gives."""
    for what, found, most in (
        ("deadline", request.deadline or 0, info.limits.deadline),
        ("messages", len(request.messages), info.limits.messages),
        ("fractions", len(request.fractions), info.limits.payloads),
    ):
        if found > most:
            raise invalid(f"{what}: at most {most:g}", f"{found:g}", "Ask for less.")
    return replace(request, client=client)


def _to_json(served: ServedPayload, info: ServiceInfo) -> dict[str, Any]:
    """The fields of schema `AnchorsAnswer`."""
    data = {"payload": base64.b64encode(served.data).decode("ascii"), "bytes": len(served.data)}
    names = ("anchors", "length", "step", "total_steps", "canvas", "delta", "last")
    return data | {name: getattr(served, name) for name in names} | {"contract": info.identity}


def _wants_json(accept: str) -> bool:
    """True where JSON is accepted and bytes are not named; clients that name neither get bytes."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return JSON in kinds and BINARY not in kinds
