"""What a service allows, in one place: every limit with its default and its reason.

Knows numbers. Does not know who keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_anchor.errors import RequestError


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients can ask of the service.

    batch:         answers denoised together.
    queue:         requests that may wait beside those being worked on; what comes beyond gets 503.
    deadline:      seconds a request may take, queueing included; clients may ask for less.
    body_bytes:    of a request. body_seconds: within which all of it has to arrive.
    header_seconds: within which a request's head has to arrive, from the connection or its last byte on.
    connections:   open at once; more are told to come back.
    messages:      of one conversation.
    payloads:      of one stream.
    """

    batch: int = 8
    queue: int = 64
    deadline: float = 30.0
    body_bytes: int = 64 * 1024
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    connections: int = 1024
    messages: int = 64
    payloads: int = 16

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("queue", 0), ("body_bytes", 256), ("connections", 1)):
            value = getattr(self, name)
            if value < least:
                raise RequestError(f"{name.replace('_', ' ')}: expected at least {least}, found {value}")
        for name in ("deadline", "body_seconds", "header_seconds"):
            if not 0 < getattr(self, name) <= 86_400:
                raise RequestError(
                    f"{name.replace('_', ' ')}: expected above 0 and at most 86400 s, "
                    f"found {getattr(self, name):g}"
                )


MIN_DEADLINE = 1.0
"""Seconds; a client that asks for less does not want an answer."""

LEAST_CANVAS = 4
"""A prompt may take of the context what leaves a canvas of the plan's size divided by this."""

LEAST_PAYLOAD = 24
"""Bytes that `max_bytes` has to allow: every payload without anchors fits."""
