"""uvicorn's HTTP/1.1 with limits on connections, on the time of a request's head, and of a client's reading.

A connection without a request has `HEAD_SECONDS` for the next one's head. One whose client does not read what
it is sent ends after `READ_SECONDS`, so that it holds up no other answer. Where there are more than
`limit_concurrency` allows, the one that has waited longest for its head ends. Not responsible for requests.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
READ_SECONDS = 20.0
"""For a client to read what fills the buffers of its connection."""

LINGER = 1.0
"""Seconds for which the rest of a body that nobody has read is thrown away: its sender may read why."""


class LimitedProtocol(H11Protocol):
    """One connection; `timer` runs while it has no request, `unread` while its client does not read."""

    timer: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(HEAD_SECONDS)
        if len(self.connections) >= (self.limit_concurrency or len(self.connections) + 1):
            waiting = [each for each in self.connections if isinstance(each, LimitedProtocol) and each.timer]
            min(waiting, key=lambda each: each.timer.when() if each.timer else 0.0).refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._reads()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._reads()
        super().resume_writing()

    def _reads(self) -> None:
        if self.unread is not None:
            self.unread.cancel()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()

    def on_response_complete(self) -> None:
        self._wait(LINGER if self.conn.their_state is h11.SEND_BODY else HEAD_SECONDS)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """To a body that breaks off; none behind a response that has begun, and to HEAD the head alone."""
        with suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

    def refuse(self, status: int) -> None:
        """Ends a connection that has no request."""
        self._stop()
        self.connections.discard(self)  # it counts no more, though its end is told later
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nConnection: close\r\nContent-Length: 0"
            self.transport.write(f"{head}\r\nRetry-After: 1\r\n\r\n".encode())
        self.transport.close()

    def _wait(self, seconds: float) -> None:
        self._stop()
        self.timer = self.loop.call_later(seconds, self.refuse, 408)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
