"""Responses of server-sent events, and work that ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from fastapi.responses import StreamingResponse

from cloud_anchor.serve.errors import encode_json
from cloud_anchor.serve.http.error_handlers import ClientLeftError

if TYPE_CHECKING:
    from starlette.types import Receive

EVENTS = "text/event-stream"
T = TypeVar("T")


def encode_event(name: str, data: object) -> bytes:
    """One server-sent event."""
    return b"event: " + name.encode("ascii") + b"\ndata: " + encode_json(data) + b"\n\n"


async def while_present(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work` and return its result; where the client disconnects first, cancel it.

    Raises ClientLeftError for a client that has disconnected.
    """

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watcher = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeftError
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


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
