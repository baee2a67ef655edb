"""Levels of confidence, and the doubt that follows from them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload import Extras, confidence_level, doubt
from payload.bytesio import Reader
from payload.certainty import BOUNDS, MIDDLES

VECTORS = Path(__file__).parents[1] / "vectors" / "doubt.json"
LEVELS = st.lists(st.integers(0, 3), max_size=50)


@pytest.mark.parametrize(
    ("probability", "level"), [(0, 0), (0.49, 0), (0.5, 1), (0.79, 1), (0.8, 2), (0.95, 3), (1, 3)]
)
def test_levels_begin_at_their_bounds(probability: float, level: int) -> None:
    assert confidence_level(probability) == level


def test_a_level_stands_for_the_middle_of_its_range() -> None:
    ends = (0, *BOUNDS, 1)
    assert pytest.approx([(a + b) / 2 for a, b in itertools.pairwise(ends)]) == MIDDLES
    assert [confidence_level(middle) for middle in MIDDLES] == [0, 1, 2, 3]


def test_nothing_carried_is_unknown_and_not_zero() -> None:
    assert doubt(()) is None
    assert doubt([3]) == pytest.approx(0.025)
    assert doubt([0, 3]) == pytest.approx((0.75 + 0.025) / 2)


def test_the_vectors_that_the_kotlin_library_reads() -> None:
    rows = json.loads(VECTORS.read_text())
    assert [doubt(row["levels"]) for row in rows] == [
        None if row["doubt"] is None else pytest.approx(row["doubt"], abs=1e-6) for row in rows
    ]


@given(LEVELS.filter(bool), st.integers(0, 49))
def test_doubt_rises_where_a_level_falls(levels: list[int], at: int) -> None:
    index = at % len(levels)
    lower = [*levels]
    lower[index] = max(0, levels[index] - 1)
    before, after = doubt(levels), doubt(lower)
    assert before is not None
    assert after is not None
    assert before + 1e-9 >= 0.025
    assert before <= 0.75
    assert after > before if lower != levels else after == before


@given(LEVELS)
def test_it_survives_the_payload(levels: list[int]) -> None:
    extras = Extras(step=1, total_steps=2, confidence=tuple(levels))
    read = Extras.read(Reader(extras.to_bytes()))
    assert doubt(read.confidence) == doubt(levels)
