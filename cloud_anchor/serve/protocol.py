"""The server's side of a connection, with bounds that uvicorn does not keep by itself.

Knows how long a request's head may take to arrive, how many connections may be open, and how to say so in
the service's own form. Does not know what a request asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloud_anchor.serve.bounds import encode_json
from cloud_anchor.serve.errors import ServiceError, overloaded
from cloud_anchor.serve.settings import Limits

REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


class BoundedProtocol(H11Protocol):
    """One connection. Subclass with `limits` set: see `bounded`."""

    limits: Limits = Limits()

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.limits.connections:
            most = f"at most {self.limits.connections} connections"
            self._answer_raw(overloaded(most, "more", 1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_timer is None and self.conn.their_state is h11.IDLE:
            self._await_head()  # the first byte of another request on a connection that was kept
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._head_came()

    def send_400_response(self, msg: str) -> None:
        self._answer_raw(
            ServiceError(
                400, "malformed_http", "an HTTP/1.1 request", "something else", "Use an HTTP client."
            )
        )

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.header_seconds, self._head_late)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        self._answer_raw(
            ServiceError(
                408,
                "head_too_slow",
                f"a request's head within {self.limits.header_seconds:g} s",
                "less of it",
                "Send it at once.",
            )
        )

    def _answer_raw(self, error: ServiceError) -> None:
        """An answer without a request that could be handed to the application; the connection ends."""
        body = encode_json(error.body())
        headers: Sequence[tuple[str, str]] = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *error.headers().items(),
        ]
        lines = [
            f"HTTP/1.1 {error.status} {REASONS[error.status]}",
            *(f"{k}: {v}" for k, v in headers),
            "",
            "",
        ]
        self.transport.write("\r\n".join(lines).encode("latin-1") + body)
        self.transport.close()


def bounded(limits: Limits) -> type[BoundedProtocol]:
    """The protocol class for a service with these limits, to be given to uvicorn."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})
