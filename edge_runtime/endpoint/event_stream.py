"""Responses of server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive

from edge_runtime.endpoint.presence import while_present

EVENTS = "text/event-stream"


def encode_event(name: str | None, data: object) -> bytes:
    """One server-sent event; name: None for one without."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return ("" if name is None else f"event: {name}\n").encode("ascii") + f"data: {text}\n\n".encode("ascii")


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
