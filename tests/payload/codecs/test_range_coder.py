"""The arithmetic coder: what goes in comes out, in about as many bits as it should, and nothing breaks it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.codecs.range_coder import MAX_TOTAL, Coder, RangeDecoder, RangeEncoder
from payload.errors import MalformedPayloadError


@st.composite
def intervals(draw: st.DrawFn) -> tuple[int, int, int]:
    total = draw(st.one_of(st.integers(1, 300), st.integers(1, MAX_TOTAL - 1)))
    start = draw(st.integers(0, total - 1))
    size = draw(st.integers(1, total - start))
    return start, size, total


@given(st.lists(intervals(), max_size=60))
def test_intervals_come_back_and_cost_what_they_should(message: list[tuple[int, int, int]]) -> None:
    encoder = RangeEncoder()
    for interval in message:
        encoder.put(*interval)
    data = encoder.finish()
    decoder = RangeDecoder(data)
    for start, size, total in message:
        assert start <= decoder.target(total) < start + size
        decoder.take(start, size, total)
    assert decoder.at >= len(data)
    bits = sum(math.log2(total / size) for _, size, total in message)
    # A byte to end in; division loses at most 1/16 of an interval at the largest total.
    assert 8 * len(data) <= bits + 8 + 0.1 * len(message)


@given(st.lists(intervals(), max_size=12))
def test_the_bytes_lie_in_the_exact_interval(message: list[tuple[int, int, int]]) -> None:
    """Against the textbook: nested fractions, with nothing rounded but the unit of each step."""
    encoder = RangeEncoder()
    low, wide, scale = Fraction(0), Fraction(1), 1 << 56
    for start, size, total in message:
        encoder.put(start, size, total)
        unit = Fraction(int(wide * scale) // total, scale)
        low, wide = low + start * unit, size * unit
        while wide * scale < 1 << 48:
            scale <<= 8
    data = encoder.finish()
    value = Fraction(int.from_bytes(data, "big"), 1 << 8 * len(data))
    assert low <= value < low + wide
    if data:
        shorter = Fraction(-(-(low * (1 << 8 * len(data) - 8)) // 1), 1 << 8 * len(data) - 8)
        assert shorter >= low + wide, "a shorter message would do"


@given(st.lists(st.integers(0, (1 << 17) - 2), max_size=20))
def test_numbers_come_back(numbers: list[int]) -> None:
    sizes = (3, 2, *[1] * 15)
    writer = Coder(None)
    for number in numbers:
        writer.number(number, sizes)
    assert writer.encoder
    reader = Coder(writer.encoder.finish())
    assert [reader.number(0, sizes) for _ in numbers] == numbers


@given(st.binary(max_size=40), st.lists(st.integers(1, MAX_TOTAL - 1), max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes, totals: list[int]) -> None:
    decoder = RangeDecoder(data)
    for total in totals:
        try:
            target = decoder.target(total)
        except MalformedPayloadError:
            return
        assert 0 <= target < total
        decoder.take(target, 1, total)


def test_what_division_leaves_over_is_refused() -> None:
    with pytest.raises(MalformedPayloadError):
        RangeDecoder(b"\xff" * 7).target(3 << 40)
