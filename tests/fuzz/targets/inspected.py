"""`payload inspect`: what it prints of any bytes. The first byte: 1 with the contract, 2 with a prompt."""

from __future__ import annotations

import json

from payload import PayloadError, Shared
from payload.inspect import describe
from tests.fuzz.targets import payload

ALLOWED = (PayloadError,)
INSTRUMENTED = ("payload",)
MAX_BYTES = 128


def run(data: bytes) -> None:
    if not data:
        return
    how, data = data[0], data[1:]
    shared = Shared(payload.TOY, payload.PROMPT if how & 2 else None) if how & 1 else None
    json.dumps(describe(data, shared))


def seeds() -> list[bytes]:
    raw = [data[1:] for data in payload.seeds() if not data[0]]
    return [bytes([how]) + data for data in raw for how in (0, 1, 3)]
