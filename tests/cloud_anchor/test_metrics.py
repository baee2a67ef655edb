"""Word F1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.metrics import word_f1

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def test_counts_and_not_only_presence_matter() -> None:
    assert word_f1("a a b", "a b b") == pytest.approx(2 / 3)
    assert word_f1("The Cat", "the cat") == 1
    assert word_f1("", "") == 1
    assert word_f1("", "a") == word_f1("a", "") == 0


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
