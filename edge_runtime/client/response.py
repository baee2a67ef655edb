"""HTTP responses from an untrusted server: bounded in size, in time and in form.

Responsible for reading a body, whole or as server-sent events, and for error texts that are safe to print.
Not responsible for requests or retries (see `client`).
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from email.utils import parsedate_to_datetime
from typing import Any

from edge_runtime.errors import CloudUnavailableError
from payload.header import MAX_PAYLOAD_BYTES

MAX_TEXT_BYTES = 1 << 16
"""Limit of a body that is text: an error, the contract."""
MAX_LINE_BYTES = MAX_PAYLOAD_BYTES * 4 // 3 + 4096
"""Limit of one line of an event stream: a payload in base64 and the JSON around it."""

FAILURES = (OSError, http.client.HTTPException, ValueError, OverflowError)
"""Of reading a response; the last where a chunk states more bytes than an index counts."""

ELSEWHERE = "something else answers there"
"""Where a captive portal or a proxy speaks in the service's place."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Deadline:
    """Shuts a socket down at a point in time, however slowly its bytes arrive.

    A socket's own timeout restarts with each byte. end: of `time.monotonic`.
    """

    def __init__(self, sock: socket.socket, end: float) -> None:
        self.expired = False
        self._sock = sock
        left = max(0.0, end - time.monotonic())
        sock.settimeout(left + 1.0)
        self._timer = threading.Timer(left, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        self.expired = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def cancel(self) -> None:
        self._timer.cancel()


class Response:
    """A response whose body has not been read yet."""

    def __init__(self, response: http.client.HTTPResponse, deadline: Deadline, held: ExitStack) -> None:
        """held: what is let go when the response is closed."""
        self.status = response.status
        self.close = held.close
        self._response, self._deadline = response, deadline

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def timed_out(self) -> bool:
        return self._deadline.expired

    def require_type(self, content_type: str) -> None:
        """Raises CloudUnavailableError for another content type: a captive portal, not the service."""
        found = (self._response.getheader("Content-Type") or "none").partition(";")[0].strip().lower()
        if content_type not in (found, "*/*"):
            self.close()
            raise CloudUnavailableError(
                f"expected the service's {content_type}, found {_printable(found)}: {ELSEWHERE}"
            )

    def read_at_most(self, size: int) -> bytes:
        """Returns the whole body; raises CloudUnavailableError for more than `size` bytes.

        Raises http.client.IncompleteRead for a truncated body, and for one without a stated length: it ends
        where the connection does, so truncation could not be noticed.
        """
        if self._response.length is None and not self._response.chunked:
            raise http.client.IncompleteRead(b"")
        data = self._response.read(size + 1)
        if len(data) > size:
            raise CloudUnavailableError(f"expected an answer of at most {size} bytes, found more")
        if self._response.length:  # http.client does not complain of a short body that was read in parts
            raise http.client.IncompleteRead(data, self._response.length)
        return data

    @property
    def first_byte(self) -> int:
        """Where in the file the body begins; 0 for a whole one. Raises ValueError for a broken range."""
        if self.status == 200:
            return 0
        match = re.match(r"bytes (\d{1,18})-", self._response.getheader("Content-Range") or "")
        if match is None:
            raise ValueError("expected the range of a partial answer")
        return int(match[1])

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yields the body as it arrives, at most `most` bytes of it. It may end early: the reader counts."""
        while most > 0 and (data := self._response.read1(min(most, 1 << 16))):
            most -= len(data)
            yield data

    def events(self) -> Iterator[tuple[str, bytes]]:
        """Yields the name and the data of each server-sent event."""
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

    def error(self, stated: Callable[[object], tuple[str, str]]) -> tuple[str, str | None]:
        """Of a response that is not 200: its status with the error that the body states, and the error's
        code; None where the body is not a service's, such as a captive portal's. Printable.

        stated: text and code of the body's `error`; raises ValueError where it is not the service's.
        """
        phrase = f"{self.status} {_printable(self._response.reason)}".rstrip()
        with suppress(*FAILURES, CloudUnavailableError):
            text, code = stated(json_object(self.read_at_most(MAX_TEXT_BYTES)).get("error"))
            return f"{phrase}: {text}", code
        return f"expected the service's answer, found {phrase}: {ELSEWHERE}", None

    def retry_after(self) -> float | None:
        """Seconds of the Retry-After header, a number or a date; None without one."""
        text = self._response.getheader("Retry-After")
        if text is None:
            return None
        if text.isascii() and text.isdigit():
            return float(text[:9])
        with suppress(ValueError, TypeError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        return None


def json_object(data: bytes) -> dict[str, Any]:
    """Parses a JSON object; raises ValueError for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def service_error(error: object) -> tuple[str, str]:
    """Text and code of a service's {"code", "expected", "found", "remedy"}; raises ValueError for others."""
    if not isinstance(error, dict) or not {"code", "expected", "found"} <= error.keys():
        raise ValueError("expected a service's error")
    fields = {name: _printable(str(value)) for name, value in error.items()}
    text = "{code}: expected {expected}, found {found}".format_map(fields)
    return f"{text}. {fields['remedy']}" if fields.get("remedy") else text, fields["code"]


def chat_error(error: object) -> tuple[str, str]:
    """Text and code of a chat server's error: {"message"}, or a text; raises ValueError for others."""
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str):
        raise ValueError("expected a chat server's error")
    return _printable(message), "refused"


def connection_error(error: Exception, timed_out: bool) -> str:
    """The cause of a failed exchange in a few words."""
    if timed_out or isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"no secure connection: {error.reason or error}"
    if isinstance(error, ConnectionResetError | BrokenPipeError | http.client.IncompleteRead):
        return "it ended the connection before its answer was complete"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error.strerror or error}"
    return "what answered does not speak its language"


def _printable(text: str) -> str:
    """Untrusted text, shortened and without control characters: it will be printed on a terminal."""
    return _CONTROL.sub(" ", text)[:300]
