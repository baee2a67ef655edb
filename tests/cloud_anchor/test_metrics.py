"""Word F1 and the bootstrap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.metrics import (
    bootstrap,
    chrf,
    edit_distance,
    edit_similarity,
    word_f1,
    word_f1_set,
)

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def test_counts_and_not_only_presence_matter() -> None:
    assert word_f1("a a b", "a b b") == pytest.approx(2 / 3)
    assert word_f1("The Cat", "the cat") == 1
    assert word_f1("", "") == 1
    assert word_f1("", "a") == word_f1("a", "") == 0


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


@given(st.text("ab c", max_size=20), st.text("ab c", max_size=20))
def test_f1_is_symmetric_and_bounded(one: str, two: str) -> None:
    assert 0 <= word_f1(one, two) == word_f1(two, one) <= 1
    assert word_f1(one, one) == 1


@pytest.mark.skipif(not TRACES.exists(), reason="the published traces are not beside this repository")
def test_published_scores_are_reproduced_from_their_texts() -> None:
    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (TRACES / name).read_text().splitlines()]

    outputs = {t["index"]: str(t["dream_output"]) for t in read("dream7b_dev.jsonl")}
    fills = read("qwen05_fill_dev.jsonl")
    assert len(fills) == 23
    for fill in fills:
        reference = outputs[fill["index"]]
        assert word_f1(fill["alone_text"], reference) == fill["alone_f1"]
        for fraction in ("sf_0.1", "sf_0.25"):
            stored = fill[fraction]
            assert word_f1(stored["real_text"], reference) == stored["full_f1"]


def test_the_interval_holds_the_mean_and_narrows_with_more_values() -> None:
    few, many = bootstrap([0.0, 1.0] * 10), bootstrap([0.0, 1.0] * 500)
    assert few.low < few.mean == 0.5 < few.high
    assert many.high - many.low < few.high - few.low
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])
