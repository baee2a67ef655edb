"""Sealed frames: forged ones, and ones of the other side with any counter.

The first byte: 1 with a right tag for the counter in the next eight bytes, 2 the same again. What was opened
once is not opened again.
"""

from __future__ import annotations

from functools import cache

from edge_runtime.errors import EdgeError
from links.seal import COUNTER_BYTES, WINDOW, Seal, make_pair
from tests.fuzz.scratch import folder

ALLOWED = (EdgeError,)
INSTRUMENTED = ("links.seal",)
MAX_BYTES = 256


@cache
def pair() -> tuple[Seal, Seal]:
    """A device's and its gateway's seal."""
    device, gateway = (Seal(path) for path in make_pair(folder() / "one"))
    return device, gateway


def run(data: bytes) -> None:
    if not data:
        return
    device, gateway = pair()
    how, data = data[0], data[1:]
    if not how & 3:
        assert gateway.open(data) is None, "expected a forged frame to be refused, found it opened"
        return
    highest = gateway._highest()
    # Far counters are read as near ones: what is right of a tag is decided by all of its counter.
    counter = max(1, highest + int.from_bytes(data[:2], "big", signed=True) if how & 2 else highest + 1)
    body = device._sending.close(counter, data[2:])
    sealed = (counter % (1 << 8 * COUNTER_BYTES)).to_bytes(COUNTER_BYTES, "big") + body
    opened = gateway.open(sealed)
    fresh = counter > highest and counter - highest <= 1 << 15 and len(data) > 2
    assert not fresh or opened == data[2:], "expected a new frame to be opened"
    assert opened is None or counter > highest - WINDOW, "expected a frame of long ago to be refused"
    assert gateway.open(sealed) is None, "expected a repeated frame to be refused"


def seeds() -> list[bytes]:
    texts = (b"a", b"question" * 9)
    return [
        bytes([how]) + at + text
        for how in (0, 1, 2)
        for at in (b"\0\1", b"\xff\xf0", b"\x70\0")
        for text in texts
    ]
