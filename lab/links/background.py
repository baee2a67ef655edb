"""A service in a background thread of this process, for experiments and tests.

Responsible for starting and stopping the server. Not responsible for what it serves.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cloud_anchor.serve.batching.backend import Backend
from cloud_anchor.serve.http.app import create_app
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.http.server import Server
from cloud_anchor.serve.http.telemetry import Metrics
from cloud_anchor.serve.page import Page
from cloud_anchor.serve.settings import Limits
from edge_runtime.bundle.bundle import Bundle

START_SECONDS = 60.0
"""Time in which the backend has to be open."""


@contextmanager
def background_service(
    backend: Backend,
    limits: Limits,
    keys: ApiKeys | None = None,
    metrics: Metrics | None = None,
    port: int = 0,
    page: Page | None = None,
    bundle: Bundle | None = None,
) -> Iterator[int]:
    """Serve on 127.0.0.1 until the context ends; yields the port.

    port: 0 for any free one. Raises RuntimeError where the service does not start in time or does not stop.
    """
    app = create_app(backend, keys or ApiKeys(), limits, metrics, page, bundle)
    with socket.create_server(("127.0.0.1", port)) as listener:
        server = Server(app, app.service, limits, "127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        end = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise RuntimeError("the service did not start")
            time.sleep(0.01)
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
    if thread.is_alive():
        raise RuntimeError("the service did not stop")
