"""`payload inspect`: what it prints of any bytes."""

from __future__ import annotations

import json

from payload import PayloadError
from payload.__main__ import describe
from tests.fuzz.targets import payload

ALLOWED = (PayloadError,)
INSTRUMENTED = ("payload",)
MAX_BYTES = 128


def run(data: bytes) -> None:
    json.dumps(describe(data))


def seeds() -> list[bytes]:
    return [data[1:] for data in payload.seeds() if not data[0]]
