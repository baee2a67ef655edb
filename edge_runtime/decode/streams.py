"""Reading an answer by `async for`.

Responsible for closing a stream that is left early, so that its engine can be used again. Not responsible for
the tokens in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Stream(Iterator[T_co], Protocol[T_co]):
    """An iterator that can be closed: an `Answer`, or a generator."""

    def close(self) -> None: ...


async def aiter_tokens(tokens: Stream[T]) -> AsyncGenerator[T]:
    """The same stream for `async for`. Every pass runs in a worker thread, so the event loop stays free.

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
