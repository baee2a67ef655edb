"""Similarity of texts besides word F1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.metrics import word_f1
from lab.questions.similarity import chrf, edit_distance, edit_similarity, word_f1_set


def test_a_set_counts_a_word_once() -> None:
    assert word_f1_set("a a b", "a b b") == 1
    assert word_f1_set("a b", "a c") == word_f1("a b", "a c") == 0.5
    assert word_f1_set("", "a") == 0
    assert word_f1_set("", " ") == 1


def test_chrf_is_the_mean_over_orders_with_recall_weighing_twice() -> None:
    # "abc" and "abd": 2 of 3 characters, 1 of 2 pairs, 0 of 1 triples; precision and recall are equal.
    assert chrf("abc", "a b d") == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    # "ab" against "abcd": precision 1 and 1; recall 2/4 and 1/3.
    precision, recall = 1.0, (1 / 2 + 1 / 3) / 2
    assert chrf("ab", "abcd") == pytest.approx(5 * precision * recall / (4 * precision + recall))
    assert chrf("one two", "two one") < chrf("one two", "one two") == 1
    assert (chrf("", ""), chrf("", "a"), chrf("x", "y")) == (1, 0, 0)


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
