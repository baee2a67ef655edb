"""A simulated link has its rate, delay and loss; a streamed response over it begins sooner."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from lab.links.link import SlowLink, link_to


def _echo(listener: socket.socket) -> None:
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)


@pytest.fixture
def echo() -> int:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_echo, args=(listener,), daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def _round_trip(port: int, data: bytes) -> float:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        back = b""
        while part := connection.recv(4096):
            back += part
    assert back == data
    return time.monotonic() - started


def test_delay_rate_and_loss(echo: int) -> None:
    with link_to(echo, SlowLink(1e9, 0.1, 0.0)) as port:
        assert _round_trip(port, b"x") >= 0.4 - 0.01, "a round trip to open, one for the byte"
    with link_to(echo, SlowLink(200e3, 0.0, 0.0)) as port:
        assert _round_trip(port, bytes(10_000)) >= 0.4 - 0.01, "80,000 bits"
    with link_to(echo, SlowLink(1e9, 0.01, 1.0)) as port:
        assert _round_trip(port, b"x") >= 0.44 - 0.01, "lost both ways"
    with link_to(echo, SlowLink(1e9, 0.0, 0.0)) as port:
        assert _round_trip(port, bytes(range(256)) * 400) < 5


def test_streaming_begins_sooner_and_ends_with_the_same_text(dream_folder: Path, edge_bundle: Path) -> None:
    from cloud_anchor.pipeline import Pipeline
    from edge_runtime.runtime import EdgeRuntime
    from lab.links.__main__ import measure
    from tests.cloud_anchor.serve.service_runner import local, served

    edge = EdgeRuntime.open(edge_bundle, threads=1)
    with (
        served(local(Pipeline.open(str(dream_folder), edge=edge_bundle))) as client,
        link_to(client.port, SlowLink(256e3, 0.1, 0.01)) as port,
    ):
        url = f"http://127.0.0.1:{port}"
        waited = measure(url, edge, "Where does the river end?", stream=False)
        streamed = measure(url, edge, "Where does the river end?", stream=True)
    assert streamed.ids == waited.ids
    assert streamed.first < waited.first / 2
    assert waited.first >= 0.4 - 0.01, "two round trips: to open, and to ask"
    assert (waited.payloads, waited.cuts) == (1, 0)
    assert 1 <= streamed.payloads <= 3
    assert streamed.cuts <= streamed.payloads
