"""The acceptance of a testbed: its figures from records, and their measurement on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import main
from lab.experiment import About
from lab.experiments import hardness
from lab.statistics import Summary
from lab.tables import Row

HARD: dict[str, Any] = {
    "id": "a",
    "benchmark": "profile",
    "tokens": 80,
    "full run": 1.0,
    "graded": 1.0,
    "right": 0.0,
    "first f1": 0.6,
    "first right": 0.0,
    "disagrees": 0.3,
    "pace": 2.0,
}
NAMES = {
    "full run": "full run accuracy, profile",
    "graded": "full run coverage",
    "right": "edge alone accuracy",
    "first f1": "first pass agreement, 60 tokens on",
    "first right": "first pass accuracy, 60 tokens on",
    "disagrees": "edge disagrees, share of tokens",
    "pace": "tokens a pass at 0.9, 60 tokens on",
}


def figures(*records: dict[str, Any]) -> dict[str, Row]:
    (table,) = hardness.tables(records, About())
    return {str(row["figure"]): row for row in table.rows}


def missed(*records: dict[str, Any]) -> list[str]:
    return [name for name, row in figures(*records).items() if row["reached"] == "no"]


def test_a_hard_pair_reaches_every_figure() -> None:
    assert list(figures(HARD, HARD)) == list(NAMES.values())
    assert not missed(HARD, HARD)
    assert not missed(
        HARD | {"benchmark": "sum"}, *[HARD | {"benchmark": "sum", "full run": f} for f in (0, 1)]
    )


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("full run", 0.0),
        ("graded", 0.8),
        ("right", 1.0),
        ("first f1", 0.97),
        ("first right", 1.0),
        ("disagrees", 0.1),
        ("disagrees", 0.6),
        ("pace", 16.0),
        ("pace", 1.0),
    ],
)
def test_each_figure_can_be_missed(figure: str, value: float) -> None:
    assert missed(HARD | {figure: value}) == [NAMES[figure]]


def test_figures_of_long_answers_leave_short_ones_out() -> None:
    easy = HARD | {"tokens": 20, "first right": 1.0, "first f1": 1.0}
    found = figures(HARD, easy)[NAMES["first f1"]]["found"]
    assert isinstance(found, Summary)
    assert (found.n, found.mean) == (1, 0.6)
    assert missed(easy) == [NAMES["first f1"], NAMES["first right"], NAMES["pace"]], "nothing shows them"


def test_the_shipped_pair_is_measured(tmp_path: Path) -> None:
    assert main([*"run hardness --data tiny --prompts 2 --threads 1 -o".split(), str(tmp_path)]) == 0
    for line in map(json.loads, (tmp_path / "items" / "hardness.jsonl").read_text().splitlines()):
        assert line["pace"] > 1
        assert 0 < line["first f1"] <= 1
