"""Metrics of the service in the text format of Prometheus.

Responsible for names, labels and buckets; the labels' values are bounded whatever clients send. Not
responsible for when something is measured.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64)
_BYTES = (8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """Metrics of one service, in a registry of its own; several may exist in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "cloud_anchor_"
        at = self.registry
        self.requests = Counter(
            name + "requests", "Requests answered, by path and status.", ["path", "status"], registry=at
        )
        self.seconds = Histogram(
            name + "request_seconds", "Time to answer.", ["path"], buckets=_SECONDS, registry=at
        )
        self.refusals = Counter(name + "refusals", "Requests refused, by code.", ["code"], registry=at)
        self.payload_bytes = Histogram(
            name + "payload_bytes", "Size of payloads.", buckets=_BYTES, registry=at
        )
        self.left = Counter(name + "clients_left", "Clients that left before their answer.", registry=at)
        self.step_seconds = Histogram(
            name + "step_seconds", "Time of a step over the batch.", buckets=_SECONDS, registry=at
        )
        self.batch = Histogram(
            name + "step_answers",
            "Answers advanced by a step.",
            buckets=_ROWS,
            registry=at,
        )
        self.now = Gauge(name + "now", "What is being done now.", ["what"], registry=at)

    def step(self, rows: int, seconds: float) -> None:
        """Record a step; called from the engine's thread."""
        self.step_seconds.observe(seconds)
        self.batch.observe(rows)

    def text(self, figures: dict[str, float]) -> bytes:
        """All metrics in Prometheus' text format; figures: current values of the gauges, by label."""
        for what, value in figures.items():
            self.now.labels(what).set(value)
        return generate_latest(self.registry)
