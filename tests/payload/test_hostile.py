"""Bytes made to hurt: refused or read, but never slow, never large, never a crash.

The files in hostile/ are the worst that fuzzing and thought have found; each begins with the byte that tells
`tests.fuzz.targets.payload` how to use it. `make fuzz` looks for more.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from payload import AnchorSet, Codec, PayloadError, Shared, decode, encode, peek
from payload.anchors import MAX_CANVAS
from payload.codecs.compact import BOUND
from payload.errors import MalformedPayloadError
from payload.header import MAX_PAYLOAD_BYTES, seal
from tests.fuzz.targets import payload as target
from tests.vectors.toy_vocabulary import contract

HERE = Path(__file__).resolve().parent
HOSTILE = sorted((HERE / "hostile").glob("*.bin"))
MOST_LINES = 400_000
"""Of Python that one input may run, whatever else the machine does."""
MOST_SECONDS = 1.0
"""Of the processor: what libraries compute runs no lines."""
MOST_BYTES = 16 << 20


def read(data: bytes) -> None:
    with contextlib.suppress(PayloadError):
        target.run(data)


@given(st.binary(max_size=200))
@example(b"")
@settings(deadline=None, max_examples=100)
def test_any_bytes(data: bytes) -> None:
    for reader in (target.TOY, target.QWEN):
        with contextlib.suppress(PayloadError):
            peek(data)
        with contextlib.suppress(PayloadError):
            decode(data, Shared(reader))


@given(st.integers(0, 255), st.binary(max_size=100))
@settings(deadline=None, max_examples=100)
def test_any_sealed_bytes(how: int, data: bytes) -> None:
    read(bytes([how | 4]) + data)


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that a call runs, one for each turn of a loop."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("file", HOSTILE, ids=lambda file: file.stem)
def test_the_worst_inputs_stay_bounded(file: Path) -> None:
    data = file.read_bytes()
    start = time.process_time()
    read(data)
    took = time.process_time() - start
    lines = lines_run(lambda: read(data))
    tracemalloc.start()
    read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines < MOST_LINES
    assert took < MOST_SECONDS
    assert peak < MOST_BYTES


def test_few_bytes_cannot_ask_for_many_tokens() -> None:
    """The likeliest tokens cost almost nothing: without a bound zeros would decode for ever."""
    anchors = AnchorSet(tuple(range(2000)), (97,) * 2000, 4096, target.TOY, 2000)
    shared = Shared(target.TOY)
    data = encode(anchors, shared)
    body = data[4:]
    assert BOUND.most(len(body)) >= 2001
    assert decode(data, shared) == anchors
    with pytest.raises(MalformedPayloadError):
        decode(seal(target.TOY, Codec.COMPACT, body.rstrip(b"\0")), shared)


def test_reading_takes_time_in_proportion_to_the_bytes() -> None:
    """Distinct tokens, then each of them again in another order, so that no context predicts it."""
    large = contract(100_000, "d")

    def lines_per_byte(count: int) -> float:
        luck = random.Random(count)
        distinct = luck.sample(range(large.vocab_size), count // 2)
        again = luck.sample(distinct, len(distinct))
        anchors = AnchorSet(tuple(range(count)), (*distinct, *again), MAX_CANVAS, large)
        data = encode(anchors, Shared(large))
        return lines_run(lambda: decode(data, Shared(large))) / len(data)

    assert lines_per_byte(4000) < 1.5 * lines_per_byte(500)


def test_the_largest_payload_is_bounded() -> None:
    """Half a megabyte of noise behind a right check: long to read, but bounded by its size."""
    noise = random.Random(1).randbytes(2000)
    data = seal(target.QWEN, Codec.COMPACT, noise)
    start = time.process_time()
    with pytest.raises(PayloadError):
        decode(data, Shared(target.QWEN))
    assert time.process_time() - start < 5
    assert MAX_PAYLOAD_BYTES == 524_288
