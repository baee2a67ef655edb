"""HTTP/1.1 protocol of a connection, with limits that uvicorn does not enforce by itself.

Responsible for the time in which a request's head must arrive, the number of open connections, and errors
before a request reaches the application. Not responsible for the content of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cloud_anchor.serve.errors import ServiceError, encode_json, overloaded
from cloud_anchor.serve.http.accounts import REQUEST_ID, Account, request_id
from cloud_anchor.serve.settings import Limits

REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


class LimitedProtocol(H11Protocol):
    """One connection. Subclass with `limits` set: see `protocol_with`."""

    limits: Limits = Limits()

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_head_timer()
        if len(self.connections) > self.limits.connections:
            most = f"at most {self.limits.connections} connections"
            self._send_error(overloaded(most, "more", 1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_timer is None and self.conn.their_state is h11.IDLE:
            self._start_head_timer()  # the first byte of another request on a kept-alive connection
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()

    def send_400_response(self, msg: str) -> None:
        remedy = "Use an HTTP client."
        self._send_error(ServiceError(400, "malformed_http", "an HTTP/1.1 request", "something else", remedy))

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.header_seconds, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        expected = f"a request's head within {self.limits.header_seconds:g} s"
        self._send_error(ServiceError(408, "head_too_slow", expected, "less of it", "Send it at once."))

    def _send_error(self, error: ServiceError) -> None:
        """Respond without a request that could be passed to the application, and close the connection."""
        body = encode_json(error.body())
        account = Account(request_id(), status=error.status, sent=len(body))
        headers: Sequence[tuple[str, str]] = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            (REQUEST_ID, account.id),
            *error.headers().items(),
        ]
        lines = [f"HTTP/1.1 {error.status} {REASONS[error.status]}", *(f"{k}: {v}" for k, v in headers)]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self.transport.close()
        account.write()


def protocol_with(limits: Limits) -> type[LimitedProtocol]:
    """The protocol class for a service with these limits, as uvicorn's option `http`."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
