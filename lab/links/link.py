"""A simulated slow link between two sockets of this machine: rate, delay and loss as TCP exposes them.

Responsible for a proxy that forwards bytes in segments: each takes its time at the link's rate and arrives a
one-way delay later, in order. A lost segment appears as a stall of one retransmission timeout, since TCP
turns loss into delay. Opening a connection takes a round trip. Not responsible for the bytes.
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
"""Bytes per segment."""

MIN_RETRANSMISSION_TIMEOUT = 0.2
"""Seconds; lower bound of a retransmission timeout, which is longer than a round trip."""


@dataclass(frozen=True)
class SlowLink:
    """rate: bits per second in each direction. delay: seconds one way. loss: share of the segments lost."""

    rate: float
    delay: float
    loss: float


LINKS = {
    "satellite": SlowLink(256e3, 0.3, 0.01),
    "3G": SlowLink(1e6, 0.075, 0.01),
    "LTE": SlowLink(20e6, 0.025, 0.002),
}
"""256 kbit/s with a round trip of 600 ms; 1 Mbit/s with 150 ms; 20 Mbit/s with 50 ms."""


@contextmanager
def link_to(port: int, link: SlowLink, seed: int = 0) -> Iterator[int]:
    """A proxy to a port of this machine over the link; yields its own port. seed: of the losses."""
    rng = random.Random(seed)
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", port))
                connections.extend((near, far))
                for source, target, wait in ((near, far, 2 * link.delay), (far, near, 0.0)):
                    _start(_forward, source, target, link, random.Random(rng.random()), wait)

    _start(accept)
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        for each in connections:
            each.close()


def _forward(
    source: socket.socket, target: socket.socket, link: SlowLink, rng: random.Random, wait: float
) -> None:
    """Forward one direction. wait: seconds before the first byte may leave, for opening the connection."""
    segments: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    _start(_deliver, segments, target)
    free = time.monotonic() + wait
    arrived = 0.0
    with suppress(OSError):
        while data := source.recv(SEGMENT):
            free = max(free, time.monotonic()) + len(data) * 8 / link.rate
            stall = max(MIN_RETRANSMISSION_TIMEOUT, 3 * link.delay) if rng.random() < link.loss else 0.0
            arrived = max(arrived, free + link.delay + stall)
            segments.put((arrived, data))
    segments.put((max(arrived, time.monotonic() + link.delay), b""))


def _deliver(segments: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    with suppress(OSError):
        while True:
            when, data = segments.get()
            time.sleep(max(0.0, when - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)


def _start(work: object, *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]
