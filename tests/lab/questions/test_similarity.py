"""Similarity of texts besides word F1."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.questions.similarity import edit_distance, edit_similarity


def _slow_edit_distance(one: list[int], other: list[int]) -> int:
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return _slow_edit_distance(one[1:], other[1:])
    rest = ((one[1:], other), (one, other[1:]), (one[1:], other[1:]))
    return 1 + min(_slow_edit_distance(*pair) for pair in rest)


@given(*[st.lists(st.integers(0, 3), max_size=6)] * 2)
def test_edit_distance_is_the_recursive_one(one: list[int], other: list[int]) -> None:
    assert edit_distance(one, other) == _slow_edit_distance(one, other)
    assert 0 <= edit_similarity(one, other) <= 1
