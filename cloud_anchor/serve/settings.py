"""Limits of a service, with defaults and ranges."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_anchor.errors import require


@dataclass(frozen=True)
class Limits:
    """Limits on the requests of a service. Raises RequestError for values out of range.

    batch:          rows denoised together.
    queue:          requests that may wait beside those in the batch; further ones get 503.
    deadline:       seconds a request may take, queueing included; clients may set less.
    body_bytes:     largest body. body_seconds: time in which all of it has to arrive.
    connections:    open at once; beyond them the one that has waited longest for a request ends.
    messages:       of one conversation.
    payloads:       of one stream.
    """

    batch: int = 8
    queue: int = 64
    deadline: float = 30.0
    body_bytes: int = 64 * 1024
    body_seconds: float = 10.0
    connections: int = 512
    messages: int = 64
    payloads: int = 16

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("queue", 0), ("body_bytes", 256), ("connections", 1)):
            value = getattr(self, name)
            require(name.replace("_", " "), value >= least, f"at least {least}", value)
        for name in ("deadline", "body_seconds"):
            value = getattr(self, name)
            require(name.replace("_", " "), 0 < value <= 86_400, "above 0 and at most 86400 s", value)


MIN_DEADLINE = 1.0
"""Seconds; the smallest deadline that a client may set."""

MIN_CANVAS_DIVISOR = 4
"""A prompt has to leave room in the context for a canvas of the plan's size divided by this."""
