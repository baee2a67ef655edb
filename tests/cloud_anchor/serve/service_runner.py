"""A service on a free port of this machine, a client that returns its responses, and a gateway beside it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.http.app import create_app
from cloud_anchor.serve.http.decision_routes import FormReader
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.page import Page
from cloud_anchor.serve.settings import Limits
from cloud_anchor.shipped import PAIRS
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.client.client import Client as ServiceClient
from edge_runtime.endpoint.server import Server
from edge_runtime.predictor import EnginePredictor
from edge_runtime.runtime import EdgeRuntime
from links.datagram import Link
from links.gateway.answering import Gateway
from links.gateway.service import ServiceSource
from links.seal import Seal, SealedLink
from tests.links.emulation import running

PLAN = DenoiseConfig(canvas=32, total_steps=16, steps=4)
LIMITS = Limits(batch=4, queue=4, deadline=20, body_bytes=4096, body_seconds=1)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Names and data of the events of a stream."""
        blocks = (block.split("\n") for block in self.body.decode().strip().split("\n\n"))
        return [
            (name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks
        ]

    @property
    def code(self) -> str:
        """Of the refusal, whose form is checked."""
        error = self.json["error"]
        assert set(error) == {"code", "expected", "found", "remedy"}
        assert all(isinstance(value, str) and value for value in error.values())
        assert self.headers["content-type"] == "application/json"
        return str(error["code"])


class Client:
    """Asks a service at a port of this machine."""

    def __init__(self, port: int, backend: Any = None) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.backend = backend

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            given = {"Content-Type": "application/json"} if body is not None else {}
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, given | named)
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, names, reply.read())
        finally:
            connection.close()

    def anchors(self, **fields: Any) -> Reply:
        return self.ask("POST", "/v1/anchors", fields)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def wait_until_idle(self) -> None:
        """Until nobody's request is waiting, in the batch or open."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            load = self.backend.engine.figures()
            if not any(load[f"{kind}_requests"] for kind in ("waiting", "running", "encoding")):
                return
            time.sleep(0.02)
        pytest.fail(f"the engine still works on {load}")


@contextmanager
def served(
    backend: Backend,
    limits: Limits = LIMITS,
    keys: ApiKeys | None = None,
    port: int = 0,
    page: Page | None = None,
    bundle: Bundle | None = None,
) -> Iterator[Client]:
    """The backend behind a port of 127.0.0.1, any free one for 0, until the context ends."""
    pipeline = getattr(backend, "pipeline", None)
    reader = FormReader(pipeline, limits, {}) if pipeline is not None else None
    known = ApiKeys() if keys is None else keys
    app = create_app(backend, known, limits, page=page, bundle=bundle, reader=reader)
    with socket.create_server(("127.0.0.1", port)) as listener:
        server = Server(app, limits.connections, limits.deadline + 15, access_log=False)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        end = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            assert time.monotonic() < end, "the service did not start"
            time.sleep(0.01)
        try:
            yield Client(listener.getsockname()[1], backend)
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive(), "the service did not stop"


def local(pipeline: Pipeline, limits: Limits = LIMITS, plan: DenoiseConfig = PLAN) -> LocalBackend:
    return LocalBackend(pipeline, plan, limits, name="test")


@contextmanager
def gateway_on(
    link: Link,
    url: str,
    seals: Sequence[Seal] = (),
    identity: bytes | None = None,
    *,
    confidence: bool = True,
) -> Iterator[None]:
    """A gateway between a link and the service at `url`, for devices with the shipped edge model.

    identity: of the gateway's edge model, where that is to be another.
    """
    edge = EdgeRuntime.open(PAIRS["tiny"].bundle, threads=1)
    about = edge.bundle.contract.identity
    source = ServiceSource.open(ServiceClient(url), about, confidence=confidence)
    context = edge.question_context()
    if identity is not None:
        assert isinstance(context.predictor, EnginePredictor)
        context.predictor.identity = identity
    gateway = Gateway(
        SealedLink(link, seals) if seals else link,
        context,
        source,
        lambda job: threading.Thread(target=job, daemon=True).start(),
    )
    with running(gateway):
        yield
