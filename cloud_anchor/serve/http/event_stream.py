"""Responses of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from fastapi.responses import StreamingResponse

from cloud_anchor.serve.errors import encode_json
from edge_runtime.endpoint.presence import while_present

if TYPE_CHECKING:
    from starlette.types import Receive

EVENTS = "text/event-stream"


def encode_event(name: str, data: object) -> bytes:
    """One server-sent event."""
    return b"event: " + name.encode("ascii") + b"\ndata: " + encode_json(data) + b"\n\n"


async def event_stream(receive: Receive, events: AsyncGenerator[bytes]) -> StreamingResponse:
    """The response of these events, once the first is there: an error before it has a response of its own.

    Raises what `events` raises until then, and ClientLeftError.
    """
    try:
        first = await while_present(receive, anext(events))
    except BaseException:
        await events.aclose()
        raise

    async def whole() -> AsyncGenerator[bytes]:
        async with aclosing(events):
            yield first
            async for event in events:
                yield event

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(whole(), headers=headers, media_type=EVENTS)
