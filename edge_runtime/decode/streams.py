"""Other ways to read a stream of tokens: a callback, or `async for`.

Knows how to stop a stream early so that the engine behind it can be used again. Does not know what the tokens
are or how they are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def each(tokens: Generator[T], on_token: Callable[[T], bool | None]) -> int:
    """Calls back with every token, until one call returns False; returns the number of calls."""
    count = 0
    try:
        for token in tokens:
            count += 1
            if on_token(token) is False:
                break
    finally:
        tokens.close()
    return count


async def aiter_tokens(tokens: Generator[T]) -> AsyncGenerator[T]:
    """The same stream for `async for`; every pass runs in a worker thread, so the event loop stays free.

    A cancelled task ends once the running pass has ended: then the engine is ready for another request. Close
    the generator (`contextlib.aclosing`) where it is left early without a cancellation.
    """
    end = object()
    running: asyncio.Future[T | object] | None = None
    try:
        while True:
            running = asyncio.ensure_future(asyncio.to_thread(next, tokens, end))
            token = await asyncio.shield(running)
            if token is end:
                return
            yield token  # type: ignore[misc]
    finally:
        while running is not None and not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        tokens.close()
