"""Metrics in Prometheus' text format; the labels' values are bounded whatever clients send."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from common.version import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
T = TypeVar("T", Counter, Gauge, Histogram)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64)
_BYTES = (8, 16, 32, 64, 128, 256, 512, 1024, 4096)

GAUGES = {
    "waiting_requests": "Requests admitted that wait for a place in the batch.",
    "running_requests": "Requests in the batch.",
    "encoding_requests": "Requests whose anchors are being chosen and encoded.",
    "expected_steps": "Steps that are expected of all requests admitted.",
}
"""Names of figures that are read when they are asked for."""


class Metrics:
    """Metrics of one service, in a separate registry; several may exist in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count, measure = partial(self._new, Counter), partial(self._new, Histogram)
        self.requests = count("requests", "Requests answered, by path and status.", ["path", "status"])
        self.seconds = measure("request_duration_seconds", "Time to answer.", ["path"], buckets=_SECONDS)
        self.refusals = count("refusals", "Requests refused, by code.", ["code"])
        self.payload_bytes = measure("payload_bytes", "Size of payloads.", buckets=_BYTES)
        self.left = count("clients_left", "Clients that left before their answer.")
        self.step_seconds = measure(
            "step_duration_seconds", "Time of a step over the batch.", buckets=_SECONDS
        )
        self.batch = measure("step_rows", "Answers advanced by a step.", buckets=_ROWS)
        self._gauges = {name: self._new(Gauge, name, says) for name, says in GAUGES.items()}
        self._new(Gauge, "build_info", "1, with the version.", ["version"]).labels(__version__).set(1)
        ProcessCollector(registry=self.registry)

    def _new(self, kind: type[T], name: str, says: str, labels: Sequence[str] = (), **settings: Any) -> T:
        return kind(f"cloud_anchor_{name}", says, labels, registry=self.registry, **settings)

    def step(self, rows: int, seconds: float) -> None:
        """Record a step; called from the engine's thread."""
        self.step_seconds.observe(seconds)
        self.batch.observe(rows)

    def text(self, figures: dict[str, float]) -> bytes:
        """All metrics in Prometheus' text format; figures: current values of gauges, by name (see GAUGES)."""
        for name, value in figures.items():
            self._gauges[name].set(value)
        return generate_latest(self.registry)
