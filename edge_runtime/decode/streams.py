"""Reading an answer by `async for`.

Responsible for closing a stream that is left early. Not responsible for
the tokens in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Stream(Iterator[T_co], Protocol[T_co]):
    """An iterator that can be closed: an `Answer`, or a generator."""

    def close(self) -> None: ...


async def aiter_tokens(tokens: Stream[T]) -> AsyncGenerator[T]:
    """The same stream for `async for`. Every pass runs in a worker thread, so the event loop stays free.

    A cancelled task ends at once, and the stream is closed once the running pass has ended. Close the
    generator (`contextlib.aclosing`) where it is left early without a cancellation.
    """

    def _close(ended: asyncio.Future[T | object]) -> None:
        ended.exception()  # nobody waits for it
        tokens.close()

    end = object()
    loop = asyncio.get_running_loop()
    running: asyncio.Future[T | object] | None = None
    try:
        while True:
            running = loop.run_in_executor(None, next, tokens, end)
            token = await asyncio.shield(running)
            if token is end:
                return
            yield token  # type: ignore[misc]
    finally:
        if running is None or running.done():
            tokens.close()
        else:
            running.add_done_callback(_close)
