"""The separation of known and unknown questions: the area against its definition, and the shipped pair."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.experiment import About
from lab.experiments import unknowns
from lab.pairs.tiny.tasks import known_and_unknown
from lab.pairs.tiny.world import NO_TOWNS, TOWNS
from tests.shipped import TINY_BUNDLE

SCORES = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12)


@settings(max_examples=10, deadline=None)  # each draws many resamples
@given(SCORES, SCORES)
def test_the_area_is_the_share_of_pairs_in_order(known: list[float], unknown: list[float]) -> None:
    pairs = [(u > k) + (u == k) / 2 for k, u in product(known, unknown)]
    found = unknowns.auroc(known, unknown)
    assert found is not None
    assert found.value == pytest.approx(sum(pairs) / len(pairs))
    assert found.low <= found.high
    assert (found.known, found.unknown) == (len(known), len(unknown))


def test_one_side_alone_has_no_area() -> None:
    assert unknowns.auroc([0.5], []) is None
    assert unknowns.auroc([], [0.5]) is None


def test_unknown_prompts_are_about_towns_that_no_training_has() -> None:
    known, unknown = known_and_unknown(40)
    assert not set(NO_TOWNS) & set(TOWNS)
    assert len(set(known)) == len(known) == len(unknown) == 40
    for one, other in zip(known, unknown, strict=True):
        assert any(town in one for town in TOWNS)
        assert not any(town in other.replace(".", " ").split() for town in TOWNS)
        assert any(town in other for town in NO_TOWNS)
    assert known_and_unknown(40) == (known, unknown)


def test_payloads_without_levels_are_counted_and_left_out() -> None:
    nothing = {"id": "a", "known": True, "anchors": 0, "doubt": None, "exact": None, "whole": None}
    sent = {"known": True, "anchors": 4, "doubt": 0.1, "exact": 0.1, "whole": 0.1, "bytes": 20}
    one = {**sent, "id": "b", "bytes_with": 22}
    two = {**one, "id": "c", "known": False, "doubt": 0.4}
    (table,) = unknowns.tables([nothing, one, two], About())
    assert table.title == "3 questions, 1 of them with nothing sent"
    assert table.rows[0]["AUROC"] == 1
    assert table.note == "Bytes of a payload: 20.0 without, 22.0 with confidence."
    (table,) = unknowns.tables([nothing], About())
    assert "AUROC" not in table.rows[0]


@pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
def test_the_shipped_pair_tells_them_apart(tmp_path: Path) -> None:
    command = [*"run unknowns --prompts 4 --threads 1 -o".split(), str(tmp_path)]
    assert main(command) == 0
    tables = json.loads((tmp_path / "tables.json").read_text())["tables"]
    assert tables["unknowns"]["title"].startswith("8 questions")
    assert tables["unknowns"]["rows"][0]["AUROC"] >= 0.85
    records = [json.loads(line) for line in (tmp_path / "items" / "unknowns.jsonl").open()]
    assert all(r["bytes"] < r["bytes_with"] for r in records if "bytes" in r)
    lines = (tmp_path / "items" / "unknowns.jsonl").read_text()
    assert main(command) == 0
    assert (tmp_path / "items" / "unknowns.jsonl").read_text() == lines
