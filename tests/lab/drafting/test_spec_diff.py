"""Tables and plots of the SpecDiff phase, on made-up records."""

from __future__ import annotations

from typing import Any

from lab.drafting.spec_diff import ALONE, AUTOREGRESSIVE, DIFFUSION, tables
from lab.experiment import About
from lab.statistics import Summary
from lab.tables import Answers

ABOUT = About("m", 1, 64, 64, (6,), (6, 16), {"edge": 1}, {}, "target", 2_000_000)


def record(number: int) -> dict[str, Any]:
    length = 10 if number % 2 else 70
    common = {"length": length, "alone_passes": length, "right": 1.0, "same": 1.0}
    rows: list[dict[str, Any]] = [{"drafter": ALONE, "gamma": 0, "steps": 0, **common}]
    cells = [(DIFFUSION, 5, 1, 1.5, 3), (DIFFUSION, 40, 1, 3.0 if length > 60 else 1.0, 3)]
    for kind, gamma, steps, faster, passes in [*cells, (AUTOREGRESSIVE, 1, 1, 1.0, 8)]:
        figures = {"alpha": 0.5, "accepted": faster + 1, "passes": passes, "faster": faster, "cheaper": 0.5}
        rows.append({"drafter": kind, "gamma": gamma, "steps": steps, **common, **figures})
    return {"id": str(number), "benchmark": "b", "difficulty": "easy", "answers": rows}


def test_the_table_has_every_cell_and_drafts_of_as_many_passes_are_compared() -> None:
    whole, equal = tables(Answers.of([record(number) for number in range(24)]), ABOUT)
    cells = [(ALONE, 0), (DIFFUSION, 5), (DIFFUSION, 40), (AUTOREGRESSIVE, 1)]
    assert [(row["drafter"], row["gamma"]) for row in whole.rows] == cells
    assert "2.00 million" in whole.note
    assert [(row["T"], row["answers of"], row["gamma"], row["N"]) for row in equal.rows] == [
        (1, "every answer", 40, 24),
        (1, "under 20 tokens", 5, 12),
        (1, "60 and more tokens", 40, 12),
    ]
    less = equal.rows[0]["less"]
    assert isinstance(less, Summary)
    assert less.mean == -5
    assert tables(Answers(), ABOUT) == []
