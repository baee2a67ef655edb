"""`payload inspect` and `links inspect`: what a command prints of any bytes.

The first byte: 1 with the contract, 2 with a prompt, 4 as a frame.
"""

from __future__ import annotations

import json

from links.inspect import describe_frame
from payload import PayloadError, Shared
from payload.inspect import describe
from tests.fuzz.targets import frames, payload

ALLOWED = (PayloadError,)
INSTRUMENTED = ("payload", "links")
MAX_BYTES = 128


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], data[1:]
    shared = Shared(payload.TOY, payload.PROMPT if how & 2 else None) if how & 1 else None
    inside: bytes | None = data
    if how & 4:
        report, inside = describe_frame(data, shared)
        json.dumps(report)
    if inside is not None:
        json.dumps(describe(inside, shared))


def seeds() -> list[bytes]:
    raw = [data[1:] for data in payload.seeds() if not data[0]]
    framed = [data[1:] for data in frames.seeds() if not data[0]]
    return [bytes([how]) + data for data in raw for how in (0, 1, 3)] + [
        bytes([4 | how]) + data for data in framed for how in (0, 1)
    ]
