"""Requests of strangers to the service: HTTP, its limits, its fields and its answers, without a model.

The first byte: 1 the whole connection's bytes, 16 what follows the head after the answer to it; else the body
of a request whose head is right: 2 for a stream, 4 for the page's trace, 8 without the key. Every answer has
a documented status, and an error its one form.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from cloud_anchor.selection.select import SELECTIONS
from cloud_anchor.serve.batching.backend import CODECS, AnchorRequest, ServiceInfo
from cloud_anchor.serve.batching.jobs import ServedPayload
from cloud_anchor.serve.batching.local import check_identity
from cloud_anchor.serve.http.app import create_app
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.settings import Limits
from edge_runtime.endpoint.protocol import LimitedProtocol
from tests.fuzz.json_mutator import OfBytes
from tests.fuzz.json_mutator import mutated as mutated_json
from tests.vectors.toy_vocabulary import contract

ALLOWED = ()
INSTRUMENTED = (
    "cloud_anchor.serve",
    "edge_runtime.endpoint",
    "h11",
    "uvicorn.protocols.http.h11_impl",
    "starlette.requests",
    "starlette.routing",
)
MAX_BYTES = 1 << 14

KEY = "k" * 24
DOCUMENTED = {200, 400, 401, 404, 405, 408, 409, 413, 415, 422, 503, 504}
NOT_HTTP = b"Invalid HTTP request received."
NOT_HTTP_ANY_MORE = b"1e\r\n" + NOT_HTTP + b"\r\n0\r\n\r\n"
"""The same behind a request that was one, whose protocol has chunks."""
"""uvicorn's own answer."""

TURNS = 200
"""Of the event loop, within which a request is answered."""


class Echo:
    """A backend that answers each share of the steps with a payload of its own."""

    def __init__(self, limits: Limits) -> None:
        toy = contract()
        counts = (64, 16, 4, 100)
        names = (tuple(SELECTIONS), CODECS, limits)
        self.info = ServiceInfo("model", toy.identity, toy.to_json(), *counts, *names)  # type: ignore[arg-type]

    async def open(self) -> None:
        pass

    async def payloads(self, request: AnchorRequest) -> AsyncGenerator[ServedPayload]:
        check_identity(request, self.info)
        for share in request.fractions or (1.0,):
            yield ServedPayload(
                b"payload", 1, None, 1, 16, 64, False, share == (request.fractions or (1.0,))[-1]
            )

    def state(self) -> str | None:
        return None

    def broken(self) -> str | None:
        return None

    def figures(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        pass


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = bytearray(), False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass


FAILED: list[str] = []


class Failures(logging.Handler):
    """What uvicorn writes of an application that failed, which an answer that has begun does not show."""

    def emit(self, record: logging.LogRecord) -> None:
        FAILED.append(self.format(record))


@cache
def service() -> tuple[asyncio.AbstractEventLoop, uvicorn.Config]:
    limits = Limits(body_bytes=1 << 13)
    app = create_app(Echo(limits), ApiKeys([KEY]), limits)
    config = uvicorn.Config(
        app, http=LimitedProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    config.load()
    logging.getLogger("uvicorn").addHandler(Failures(logging.ERROR))
    logging.getLogger("uvicorn").propagate = False
    return asyncio.new_event_loop(), config


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], data[1:]
    if not how & 1:
        path = "/v1/trace" if how & 4 else "/v1/anchors/stream" if how & 2 else "/v1/anchors"
        key = "" if how & 8 else f"Authorization: Bearer {KEY}\r\n"
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{key}"
        data = f"{head}Content-Length: {len(data)}\r\n\r\n".encode("ascii") + data
    loop, config = service()
    first, gap, rest = data.partition(b"\r\n\r\n") if how & 16 else (data, b"", b"")
    check(loop.run_until_complete(answer(config, first + gap, rest)))
    assert not FAILED, FAILED


async def answer(config: uvicorn.Config, *parts: bytes) -> bytes:
    """What is written to a connection on which these bytes arrive, each part after the answer to the last,
    and after them nothing.
    """
    transport, state = Transport(), ServerState()
    connection = LimitedProtocol(
        config=config, server_state=state, app_state={}, _loop=asyncio.get_running_loop()
    )
    connection.connection_made(transport)
    for data in filter(None, parts):  # what arrives is never empty
        if transport.closed:
            break
        connection.data_received(data)
        for _ in range(TURNS):
            if transport.closed or not state.tasks:
                break
            await asyncio.sleep(0)
    connection.connection_lost(None)
    if state.tasks:
        await asyncio.wait(list(state.tasks))
    return bytes(transport.written)


def check(written: bytes) -> None:
    """Every response is documented; an error has a code and three texts."""
    for status, rest in re.findall(rb"HTTP/1\.1 (\d{3})(.*?)(?=HTTP/1\.1 \d{3}|\Z)", written, re.DOTALL):
        assert int(status) in DOCUMENTED | {100, 499}, written
        body = rest.partition(b"\r\n\r\n")[2]
        if int(status) >= 400 and body and body not in (NOT_HTTP, NOT_HTTP_ANY_MORE):
            assert set(json.loads(body)["error"]) == {"code", "expected", "found", "remedy"}


def mutated(data: bytes, most: int, seed: int, of_bytes: OfBytes) -> bytes:
    """As of JSON, behind the first byte."""
    if not data or data[0] & 1:
        return of_bytes(data, most)
    return data[:1] + mutated_json(data[1:], most - 1, seed, of_bytes)


def seeds() -> list[bytes]:
    bodies: list[dict[str, Any]] = [
        {"prompt": "Who?", "fraction": 0.1, "max_bytes": 32, "select": "edge-aware", "codec": "compact"},
        {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "steps": 4},
        {"prompt": "a", "fractions": [0.1, 0.5], "confidence": True, "deadline": 5.0},
        {"prompt": "a", "contract": contract().identity},
    ]
    whole = [
        f"{line} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()
        for line, more in (
            ("GET /v1/contract", f"Authorization: Bearer {KEY}\r\n"),
            ("GET /healthz", ""),
            ("GET /metrics", "Connection: close\r\n"),
            ("GET /openapi.json", ""),
            ("DELETE /v1/anchors", f"Authorization: Bearer {KEY}\r\n"),
            ("POST /v1/anchors", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"),
        )
    ]
    whole.append(whole[1] + whole[1])
    whole[5] += b"2\r\n{}\r\n0\r\n\r\n"
    return [bytes([how]) + json.dumps(body).encode() for how in (0, 2, 4, 8) for body in bodies] + [
        bytes([how]) + each for how in (1, 17) for each in whole
    ]
