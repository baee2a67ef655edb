"""A service that makes payloads, asked over HTTP with the standard library alone.

Knows addresses, timeouts, retries and the form of requests and answers. Does not know what a payload holds:
its bytes are handed on, and whoever decodes them judges them. Nothing that comes from the network is
believed: sizes are bounded, time is bounded, and an answer of another form is no answer.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from edge_runtime.client.response import MAX_TEXT_BYTES, Guard, Response, json_object, reason, refusal_text
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, UsageError
from payload.header import MAX_PAYLOAD_BYTES

BINARY, JSON, EVENTS = "application/octet-stream", "application/json", "text/event-stream"

MAX_EVENTS = 64
CONNECT_SECONDS = 5.0
RETRIED = {408, 429, 500, 502, 503, 504}
"""Statuses that may be another one the next time."""
BACKOFF = 0.25
"""Seconds before the second attempt; twice as long before each further one."""


class Sent(NamedTuple):
    """Bytes of one payload; `delta` if it adds to the one before it."""

    data: bytes
    delta: bool


@dataclass(frozen=True)
class Client:
    """A service's address, and how patiently it is asked.

    url:      http://host:port or https://..., with the path before /v1 where there is one.
    key:      sent as `Authorization: Bearer`.
    timeout:  seconds in all, from the first attempt to the last byte.
    attempts: how often it is asked at most.

    Raises UsageError for an address that is none. Its methods raise CloudRefusedError where the service
    answers that it will not, and CloudUnavailableError where it cannot be reached or cannot answer in time.
    """

    url: str
    key: str | None = None
    timeout: float = 15.0
    attempts: int = 4
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            fine = (
                parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
            )
            fine = fine and parts.username is None and (parts.port is None or parts.port > 0)
        except ValueError:
            fine = False
        if not fine or not self.url.isprintable() or " " in self.url:
            raise UsageError(
                f"url: expected http://host:port or https://host without a user name, found {self.url!r:.100}"
            )
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key):
            raise UsageError("key: expected printable ASCII characters, found others")
        if not 0 < self.timeout <= 3600:
            raise UsageError(f"timeout: expected above 0 and at most 3600 seconds, found {self.timeout:g}")

    @property
    def exposes_key(self) -> bool:
        """Whether the key would cross a network unencrypted."""
        parts = urlsplit(self.url)
        local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
        return self.key is not None and parts.scheme == "http" and not local

    def identity(self) -> str:
        """The identity of the contract that its payloads are made for."""
        with self._ask("GET", "/v1/contract", None, JSON) as answer:
            data = json_object(answer.read_at_most(MAX_TEXT_BYTES))
        identity = data.get("identity")
        if not isinstance(identity, str) or not re.fullmatch(r"[0-9a-f]{64}", identity):
            raise CloudUnavailableError(
                f"{self.url}: expected a contract's identity, found none in its answer"
            )
        return identity

    def fetch(self, prompt: str, **fields: Any) -> bytes:
        """One payload. fields: of the request, such as fraction, max_bytes, contract; None leaves one out."""
        with self._ask("POST", "/v1/anchors", _body(prompt, fields), BINARY) as answer:
            return answer.read_at_most(MAX_PAYLOAD_BYTES)

    def stream(self, prompt: str, **fields: Any) -> Generator[Sent]:
        """Payloads as the service makes them. One that breaks is not begun anew: what was sent stands."""
        with self._ask("POST", "/v1/anchors/stream", _body(prompt, fields), EVENTS) as answer:
            for count, (name, data) in enumerate(answer.events()):
                if name == "done":
                    return
                if name == "error":
                    raise CloudUnavailableError(f"{self.url}: {refusal_text(json_object(data))}")
                if name != "payload" or count >= MAX_EVENTS:
                    raise CloudUnavailableError(f"{self.url}: expected payloads, found another stream")
                yield _sent(data)
        raise CloudUnavailableError(f"{self.url}: the stream ended before it was done")

    @contextmanager
    def _ask(self, method: str, path: str, body: bytes | None, accept: str) -> Iterator[Response]:
        """The answer to a request, asked again where that may help."""
        end = time.monotonic() + self.timeout
        answer = self._answer(method, path, body, accept, end)
        try:
            yield answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CloudUnavailableError(f"{self.url}: {reason(error, answer.late)}") from error
        finally:
            answer.close()

    def _answer(self, method: str, path: str, body: bytes | None, accept: str, end: float) -> Response:
        attempt = 1
        while True:
            wait = BACKOFF * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
            try:
                answer = self._once(method, path, body, accept, end)
                if answer.status == 200:
                    answer.expect(accept)
                    return answer
                with answer:
                    trouble = answer.refusal()
                if answer.status not in RETRIED:
                    raise CloudRefusedError(f"{self.url}: {trouble}")
                asked = answer.retry_after()
                if asked is not None:
                    # Those who were turned away together should not come back together.
                    wait = max(wait, asked * random.uniform(1.0, 1.25))
            except (OSError, http.client.HTTPException, ValueError) as error:
                trouble = reason(error, time.monotonic() >= end)
            if attempt >= self.attempts or time.monotonic() + wait >= end:
                tries = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                raise CloudUnavailableError(f"{self.url}: {trouble} ({tries})")
            self.sleep(wait)
            attempt += 1

    def _once(self, method: str, path: str, body: bytes | None, accept: str, end: float) -> Response:
        parts = urlsplit(self.url)
        assert parts.hostname
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection: http.client.HTTPConnection
        first = min(CONNECT_SECONDS, left)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=first, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=first)
        headers = {
            "Accept": accept,
            "Content-Type": JSON,
            "User-Agent": "edge-runtime",
            "Connection": "close",
        }
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            connection.connect()
            guard = Guard(connection.sock, end)
        except BaseException:
            connection.close()
            raise
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            if guard.late:
                raise TimeoutError  # a head that was cut looks like one that has ended
            return Response(response, connection, guard)
        except BaseException:
            guard.close()
            connection.close()
            raise


def _body(prompt: str, fields: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"prompt": prompt, **given}).encode("ascii")


def _sent(data: bytes) -> Sent:
    fields = json_object(data)
    text, delta = fields.get("payload"), fields.get("delta")
    if not isinstance(text, str) or not isinstance(delta, bool):
        raise ValueError("expected a payload in an event")
    try:
        payload = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("expected base64") from error
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError("expected a smaller payload")
    return Sent(payload, delta)
