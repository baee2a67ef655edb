"""The acceptance of a testbed: its figures from records, and their measurement on the shipped pair."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.experiments import hardness
from tests.shipped import TINY_BUNDLE

HARD: dict[str, Any] = {
    "benchmark": "profile",
    "tokens": 80,
    "full": 1.0,
    "graded": 1.0,
    "alone": 0.0,
    "first": {"right": 0.0, "f1": 0.6},
    "disagrees": 0.3,
    "parallel": {"right": 1.0, "tokens": 80, "steps": 40},
}
NAMES = {
    "full": "full run right, profile",
    "graded": "full run, share told of what was asked",
    "alone": "edge alone right",
    "f1": "first pass F1, 60 tokens on",
    "right": "first pass right, 60 tokens on",
    "disagrees": "edge disagrees, share of tokens",
    "pace": "tokens a pass at 0.9, 60 tokens on",
}


def verdicts(*records: dict[str, Any]) -> dict[str, bool]:
    return {figure.name: figure.reached for figure in hardness.figures(records)}


def test_a_hard_pair_reaches_every_figure() -> None:
    assert verdicts(HARD, HARD) == dict.fromkeys(NAMES.values(), True)


@pytest.mark.parametrize(
    ("change", "misses"),
    [
        ({"full": 0.0}, "full"),
        ({"graded": 0.8}, "graded"),
        ({"alone": 1.0}, "alone"),
        ({"first": {"right": 0.0, "f1": 0.97}}, "f1"),
        ({"first": {"right": 1.0, "f1": 0.6}}, "right"),
        ({"disagrees": 0.1}, "disagrees"),
        ({"disagrees": 0.6}, "disagrees"),
        ({"parallel": {"right": 1.0, "tokens": 80, "steps": 5}}, "pace"),
        ({"parallel": {"right": 1.0, "tokens": 80, "steps": 80}}, "pace"),
    ],
)
def test_each_figure_can_be_missed(change: dict[str, Any], misses: str) -> None:
    found = verdicts(HARD | change)
    assert [name for name, reached in found.items() if not reached] == [NAMES[misses]]


def test_figures_of_long_answers_leave_short_ones_out() -> None:
    easy = HARD | {"tokens": 20, "first": {"right": 1.0, "f1": 1.0}}
    found = {figure.name: figure.found for figure in hardness.figures([HARD, easy])}
    first, share = found[NAMES["f1"]], found[NAMES["disagrees"]]
    assert first is not None
    assert (first.n, first.mean) == (1, 0.6)
    assert share is not None
    assert share.n == 2


def test_a_figure_that_nothing_shows_is_not_reached() -> None:
    short = HARD | {"tokens": 20}
    missing = [figure for figure in hardness.figures([short]) if figure.found is None]
    assert [figure.name for figure in missing] == [NAMES["f1"], NAMES["right"], NAMES["pace"]]
    assert not any(figure.reached for figure in missing)


def test_sums_may_be_wrong_more_often() -> None:
    figures = hardness.figures([HARD | {"benchmark": "sum"}])
    (figure,) = (each for each in figures if each.name == "full run right, sum")
    assert (figure.low, figure.high) == (0.6, math.inf)


@pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
def test_the_shipped_pair_is_measured_once(tmp_path: Path) -> None:
    command = [*"run hardness --data tiny --prompts 2 --threads 1 -o".split(), str(tmp_path)]
    assert main(command) == 0
    report = json.loads((tmp_path / "tables.json").read_text())
    assert report["tables"]["hardness"]["title"] == "2 held-out questions"
    lines = (tmp_path / "items" / "hardness.jsonl").read_text()
    for line in map(json.loads, lines.splitlines()):
        assert line["tokens"] == line["parallel"]["tokens"], "an easy answer is the same in few passes"
        assert 1 <= line["parallel"]["steps"] < line["tokens"]
        assert 0 < line["first"]["f1"] <= 1
    assert main(command) == 0
    assert (tmp_path / "items" / "hardness.jsonl").read_text() == lines
