"""A server of OpenAI's chat protocol that says and breaks what a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def chat_server(*behaviours: Behaviour) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the bodies it was sent; each request gets the next behaviour, the last one again."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
            behaviours[min(len(asked), len(behaviours)) - 1](self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"openai:http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str | None, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


def says(
    pieces: Sequence[str], end: bytes = b"data: [DONE]\n\n", finish: str | None = "stop", pause: float = 0
) -> Behaviour:
    """A stream of these pieces, and how it ends."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        try:
            for text in pieces:
                handler.wfile.write(piece(text))
                handler.wfile.flush()
                time.sleep(pause)
            handler.wfile.write((piece(None, finish) if finish else b"") + end)
        except OSError:
            pass  # the client has left

    return behave


def fails(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Behaviour:
    """A response that is no stream."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def first_tokens(**logarithms: float) -> Behaviour:
    """An answer's first token, with these log-probabilities."""
    listed = [{"token": token, "logprob": value} for token, value in logarithms.items()]
    found = {"choices": [{"logprobs": {"content": [{"token": "x", "top_logprobs": listed}]}}]}
    return fails(200, json.dumps(found).encode())


def stalls(handler: BaseHTTPRequestHandler) -> None:
    """Never answers."""
    time.sleep(5)
