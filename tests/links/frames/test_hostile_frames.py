"""Bytes made to hurt the readers of frames. `make fuzz` looks for more."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from links.frames.kinds import FrameKind
from links.frames.question import MAX_QUESTION_FRAME_BYTES, Question, decode_question, seal_question
from payload import PayloadError
from tests.fuzz.targets import frames as target


@given(st.integers(0, 255), st.binary(max_size=60))
@example(0, b"")
@settings(deadline=None, max_examples=150)
def test_any_bytes(how: int, data: bytes) -> None:
    with suppress(PayloadError):
        target.run(bytes([how]) + data)


@pytest.mark.parametrize("kind", [FrameKind.QUESTION_COMPACT, FrameKind.QUESTION_PREDICTIVE])
@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x5a"])
def test_the_longest_frames_are_read_in_bounded_time(kind: FrameKind, filler: bytes) -> None:
    body = filler * (MAX_QUESTION_FRAME_BYTES - 7)
    data = seal_question(Question(1, "a"), kind, target.MODELLED, body, b"d")
    start = time.process_time()
    with pytest.raises(PayloadError):
        decode_question(data, target.MODELLED)
    assert time.process_time() - start < 2
