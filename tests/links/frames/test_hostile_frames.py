"""Bytes made to hurt the readers of frames. `python tests/payload/fuzz_decode.py --frames` looks for more."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from links.frames import MAX_QUESTION_FRAME_BYTES, FrameKind, Question, decode_question
from links.frames.question import seal_question
from payload import PayloadError
from tests.payload import fuzz_decode


@given(st.integers(0, 255), st.binary(max_size=60))
@example(0, b"")
@settings(deadline=None, max_examples=150)
def test_any_bytes(how: int, data: bytes) -> None:
    fuzz_decode.one_frame(bytes([how]) + data)


def test_mutated_frame_vectors() -> None:
    luck = random.Random(3)
    pool = fuzz_decode.frame_seeds()
    for _ in range(600):
        fuzz_decode.one_frame(fuzz_decode.mutate(luck, luck.choice(pool)))


@pytest.mark.parametrize("kind", [FrameKind.QUESTION_COMPACT, FrameKind.QUESTION_PREDICTIVE])
@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x5a"])
def test_the_longest_frames_are_read_in_bounded_time(kind: FrameKind, filler: bytes) -> None:
    body = filler * (MAX_QUESTION_FRAME_BYTES - 7)
    data = seal_question(Question(1, "a"), kind, fuzz_decode.MODELLED, body, b"d")
    start = time.process_time()
    with pytest.raises(PayloadError):
        decode_question(data, fuzz_decode.MODELLED)
    assert time.process_time() - start < 2
