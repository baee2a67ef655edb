"""Who asks, and streams for them: whether a client is still there, whether a page of others may have sent its
request, and responses of server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.responses import StreamingResponse
from starlette.types import Receive

EVENTS = "text/event-stream"
T = TypeVar("T")


class ClientLeftError(Exception):
    """The client has disconnected before its response."""


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


def foreign_header(headers: Mapping[str, str]) -> str | None:
    """What shows that a page of others may have sent a request to this machine; None where nothing does.

    A page may point a name of its own at this machine (DNS rebinding), but neither an address nor localhost.
    """
    host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        if name != "localhost":
            ip_address(name)
        return None if origin in ("", f"http://{host}", f"https://{host}") else f"Origin: {origin:.80}"
    return f"Host: {host:.80}"


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
