"""An answer over HTTP from somebody who is not trusted: bounded in size, in time and in form.

Knows how a body is read, as a whole or as server-sent events, and how a refusal becomes words that are safe
to show. Does not know what was asked (see `remote`).
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from edge_runtime.errors import CloudUnavailableError
from payload.header import MAX_PAYLOAD_BYTES

MAX_TEXT_BYTES = 1 << 16
"""Of an answer that is text: an error, the contract."""
MAX_LINE_BYTES = MAX_PAYLOAD_BYTES * 4 // 3 + 4096
"""Of one line of a stream: a payload in base64 and what stands around it."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Guard:
    """Ends a connection at a time, however slowly its bytes come: a socket's own timeout begins anew with
    each.
    """

    def __init__(self, sock: socket.socket, end: float) -> None:
        self.late = False
        self._sock = sock
        left = max(0.0, end - time.monotonic())
        sock.settimeout(left + 1.0)
        self._timer = threading.Timer(left, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self.late = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._timer.cancel()


class Response:
    """A response whose body has not been read."""

    def __init__(
        self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection, guard: Guard
    ) -> None:
        self.status = response.status
        self._response, self._connection, self._guard = response, connection, guard

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._guard.close()
        self._response.close()
        self._connection.close()

    @property
    def late(self) -> bool:
        return self._guard.late

    def expect(self, kind: str) -> None:
        """Raises CloudUnavailableError for another content type: some network's portal, not the service."""
        found = (self._response.getheader("Content-Type") or "none").partition(";")[0].strip().lower()
        if found != kind:
            self.close()
            raise CloudUnavailableError(
                f"expected the service's {kind}, found {_clean(found)}: something else answers there"
            )

    def read_at_most(self, size: int) -> bytes:
        """All of the body; raises CloudUnavailableError where it is larger than it may be.

        A body without a length ends where the connection does, and nobody knows whether that is its end.
        """
        if self._response.length is None and not self._response.chunked:
            raise http.client.IncompleteRead(b"")
        data = self._response.read(size + 1)
        if len(data) > size:
            raise CloudUnavailableError(f"expected an answer of at most {size} bytes, found more")
        if self._response.length:  # http.client does not complain of a short body that was read in parts
            raise http.client.IncompleteRead(data, self._response.length)
        return data

    def events(self) -> Iterator[tuple[str, bytes]]:
        """Server-sent events: name and data."""
        name, data = "message", b""
        while line := self._response.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise CloudUnavailableError(f"expected lines of at most {MAX_LINE_BYTES} bytes, found more")
            field, _, value = line.rstrip(b"\r\n").partition(b":")
            if not field and not value:
                if data:
                    yield name, data
                name, data = "message", b""
            elif field == b"event":
                name = value.strip().decode("ascii", "replace")
            elif field == b"data":
                data = value.strip()

    def refusal(self) -> str:
        """What an answer that is not 200 says, in words that are safe to show."""
        phrase = f"{self.status} {_clean(self._response.reason)}"
        with suppress(OSError, http.client.HTTPException, ValueError, CloudUnavailableError):
            return f"{phrase}: {refusal_text(json_object(self.read_at_most(MAX_TEXT_BYTES)))}"
        return phrase

    def retry_after(self) -> float | None:
        """Seconds that the service asks to wait: a number or a date."""
        text = self._response.getheader("Retry-After")
        if text is None:
            return None
        if text.isascii() and text.isdigit():
            return float(text[:9])
        with suppress(ValueError, TypeError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        return None


def json_object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def refusal_text(data: Mapping[str, Any]) -> str:
    """The service's own words: {"error": {"code", "expected", "found", "remedy"}} or the inside of that."""
    error = data.get("error", data)
    if not isinstance(error, dict):
        raise ValueError("expected an error")
    words = {
        name: _clean(str(error[name])) for name in ("code", "expected", "found", "remedy") if name in error
    }
    if not words:
        raise ValueError("expected an error")
    text = f"{words.get('code', 'refused')}: expected {words.get('expected')}, found {words.get('found')}"
    return f"{text}. {words['remedy']}" if words.get("remedy") else text


def _clean(text: str) -> str:
    """What others have written, short and without control characters: it will be shown on a terminal."""
    return _CONTROL.sub(" ", text)[:300]


def reason(error: Exception, late: bool) -> str:
    """In a few words why there was no answer."""
    if late or isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {error.reason or error}"
    if isinstance(error, ConnectionResetError | BrokenPipeError | http.client.IncompleteRead):
        return "it ended the connection before its answer was complete"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error.strerror or error}"
    return "what answered does not speak its language"
