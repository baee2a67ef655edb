"""What a hostile service answers: whole HTTP responses, read by the device's client.

The first byte: 1 the identity of its contract, 2 a stream, else a payload; 4 a head with the right type and
length is put before the rest, with status 200 or, with 8, 503.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
from contextlib import closing
from typing import Any
from unittest.mock import patch

from edge_runtime.client import client as module
from edge_runtime.client.client import BINARY, EVENTS, JSON, Client
from edge_runtime.errors import CloudFailureError

ALLOWED = (CloudFailureError,)
INSTRUMENTED = ("edge_runtime.client", "http.client")
MAX_BYTES = 1 << 15


class Wire:
    """A socket behind which the same bytes always come."""

    data = b""

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.data))  # type: ignore[arg-type]

    def _nothing(self, *_: object, **__: object) -> None:
        pass

    sendall = settimeout = shutdown = close = _nothing


class NoDeadline:
    """In place of a thread for each response; the bytes are all there."""

    expired = False

    def __init__(self, *_: object) -> None:
        pass

    def cancel(self) -> None:
        pass


def connect(self: Any) -> None:
    self.sock = Wire()


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], data[1:]
    kind = JSON if how & 1 else EVENTS if how & 2 else BINARY
    if how & 4:
        status = "503 Busy" if how & 8 else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {JSON if how & 8 else kind}\r\n"
        head += f"Content-Length: {len(data)}\r\n"
        data = head.encode("ascii") + (b"" if how & 16 else b"\r\n") + data
    Wire.data = data
    client = Client("http://service", timeout=5, attempts=2, sleep=lambda _: None)
    with (
        patch.object(http.client.HTTPConnection, "connect", connect),
        patch.object(module, "Deadline", NoDeadline),
    ):
        if how & 1:
            client.service()
        elif how & 2:
            with closing(client.stream("a")) as stream:
                for _ in stream:
                    pass
        else:
            client.fetch("a")


def seeds() -> list[bytes]:
    contract = {
        "identity": "a" * 64,
        "steps": 4,
        "total_steps": 16,
        "codecs": ["compact"],
        "selections": ["paper"],
    }
    event = {"payload": base64.b64encode(b"payload").decode(), "delta": False, "last": True}
    error = {"code": "overloaded", "expected": "less", "found": "more", "remedy": "Wait."}
    stream = b"event: payload\ndata: " + json.dumps(event).encode() + b"\n\n"
    failed = json.dumps({"error": error}).encode()
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % EVENTS.encode()
    return [
        b"\4" + b"payload",
        b"\5" + json.dumps(contract).encode(),
        b"\6" + stream + stream + b"event: done\ndata: {}\n\n",
        b"\6" + stream + b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n",
        b"\2" + chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(stream), stream),
        b"\x0c" + failed,
        b"\x1c" + b"Retry-After: 5\r\n\r\n" + failed,
        b"\x1c" + b"Retry-After: Mon, 23 Nov 2026 10:00:00 GMT\r\n\r\n" + failed,
        b"\0HTTP/1.0 302 Found\r\nLocation: /login\r\n\r\n<html>",
    ]
