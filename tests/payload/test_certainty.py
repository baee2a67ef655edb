"""Levels of confidence, and the doubt that follows from them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from payload import confidence_level, doubt
from payload.extras import BOUNDS, MIDDLES

VECTORS = Path(__file__).parents[1] / "vectors" / "doubt.json"


@pytest.mark.parametrize(
    ("probability", "level"), [(0, 0), (0.49, 0), (0.5, 1), (0.79, 1), (0.8, 2), (0.95, 3), (1, 3)]
)
def test_levels_begin_at_their_bounds(probability: float, level: int) -> None:
    assert confidence_level(probability) == level


def test_a_level_stands_for_the_middle_of_its_range() -> None:
    ends = (0, *BOUNDS, 1)
    assert pytest.approx([(a + b) / 2 for a, b in itertools.pairwise(ends)]) == MIDDLES


def test_doubt_is_that_of_the_vectors_of_all_languages() -> None:
    rows = json.loads(VECTORS.read_text())
    assert [doubt(row["levels"]) for row in rows] == [
        None if row["doubt"] is None else pytest.approx(row["doubt"], abs=1e-6) for row in rows
    ]
