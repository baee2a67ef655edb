"""A slow network between two sockets of this machine: rate, delay and loss, as a TCP connection shows them.

A proxy that passes bytes on in segments: each takes its share of the link's rate, arrives a one-way delay
later, and never before the one ahead of it. A lost segment shows as a stall of a retransmission timeout, for
TCP hides loss behind lateness. Opening a connection takes a round trip. Knows sockets and clocks only.
"""

from __future__ import annotations

import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

SEGMENT = 1200
"""Bytes of one segment."""

LEAST_TIMEOUT = 0.2
"""Seconds: a retransmission timeout is at least so long, and longer than a round trip."""


@dataclass(frozen=True)
class Link:
    """rate: bits a second, each way. delay: seconds one way. loss: share of the segments."""

    rate: float
    delay: float
    loss: float


LINKS = {
    "satellite": Link(256e3, 0.3, 0.01),
    "3G": Link(1e6, 0.075, 0.01),
    "LTE": Link(20e6, 0.025, 0.002),
}
"""256 kbit/s with a round trip of 600 ms; 1 Mbit/s with 150 ms; 20 Mbit/s with 50 ms."""


@contextmanager
def behind(port: int, link: Link, seed: int = 0) -> Iterator[int]:
    """A port of this machine that leads to another one of it over the link."""
    luck = random.Random(seed)
    listener = socket.create_server(("127.0.0.1", 0))
    open_now: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", port))
                open_now.extend((near, far))
                for source, target, wait in ((near, far, 2 * link.delay), (far, near, 0.0)):
                    _start(_pass_on, source, target, link, random.Random(luck.random()), wait)

    _start(accept)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        for each in open_now:
            each.close()


def _pass_on(
    source: socket.socket, target: socket.socket, link: Link, luck: random.Random, wait: float
) -> None:
    """One direction. wait: seconds before the first byte may leave, for the connection to be opened."""
    road: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    _start(_deliver, road, target)
    free = time.monotonic() + wait
    arrived = 0.0
    with suppress(OSError):
        while data := source.recv(SEGMENT):
            free = max(free, time.monotonic()) + len(data) * 8 / link.rate
            stall = max(LEAST_TIMEOUT, 3 * link.delay) if luck.random() < link.loss else 0.0
            arrived = max(arrived, free + link.delay + stall)
            road.put((arrived, data))
    road.put((max(arrived, time.monotonic() + link.delay), b""))


def _deliver(road: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    with suppress(OSError):
        while True:
            when, data = road.get()
            time.sleep(max(0.0, when - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)


def _start(work: object, *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]
