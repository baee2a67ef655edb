"""Tables and plots of the SpecDiff phase, on made-up records."""

from __future__ import annotations

from typing import Any

from lab.drafting.spec_diff import (
    ALONE,
    AUTOREGRESSIVE,
    DIFFUSION,
    grid,
    tables,
)
from lab.experiment import About
from lab.tables import Answers

ABOUT = About("m", 1, 64, 64, (6,), (6, 16), {"edge": 1}, {}, "target", 2_000_000)


def record(number: int) -> dict[str, Any]:
    length = 10 if number % 2 else 70
    common = {"length": length, "alone_passes": length, "right": 1.0, "same": 1.0}
    rows: list[dict[str, Any]] = [{"drafter": ALONE, "gamma": 0, "steps": 0, **common}]
    cells = [(DIFFUSION, 5, 1, 1.5), (DIFFUSION, 40, 1, 3.0 if length > 60 else 1.0)]
    for kind, gamma, steps, faster in [*cells, (AUTOREGRESSIVE, 5, 5, 1.2)]:
        figures = {"alpha": 0.5, "accepted": faster + 1, "passes": 3, "faster": faster, "cheaper": 0.5}
        rows.append({"drafter": kind, "gamma": gamma, "steps": steps, **common, **figures})
    return {"id": str(number), "benchmark": "b", "difficulty": "easy", "answers": rows}


RECORDS = [record(number) for number in range(24)]


def test_the_grid_has_no_more_steps_than_tokens() -> None:
    assert len(list(grid())) == 24
    assert all(steps <= gamma for gamma, steps in grid())


def test_the_table_has_every_cell() -> None:
    whole, equal = tables(Answers.of(RECORDS), ABOUT)
    assert not equal.rows, "no drafts of one token"
    assert [(row["drafter"], row["gamma"]) for row in whole.rows] == [
        (ALONE, 0),
        (DIFFUSION, 5),
        (DIFFUSION, 40),
        (AUTOREGRESSIVE, 5),
    ]
    assert "2.00 million" in whole.note
    assert tables(Answers(), ABOUT) == []


def with_one_token(passes: float) -> list[dict[str, Any]]:
    """The records, with drafts of one token that need so many target passes."""
    row = {"drafter": AUTOREGRESSIVE, "gamma": 1, "steps": 1, "accepted": 2, "passes": passes, "faster": 1}
    common = {"same": 1.0, "right": 1.0, "alpha": 0.5, "cheaper": 0.5, "alone_passes": 70}
    return [
        {**one, "answers": [*one["answers"], {**row, **common, "length": one["answers"][0]["length"]}]}
        for one in RECORDS
    ]


def test_drafts_of_as_many_passes_are_compared() -> None:
    *_, equal = tables(Answers.of(with_one_token(8)), ABOUT)
    assert [(row["T"], row["answers of"], row["gamma"], row["N"]) for row in equal.rows] == [
        (1, "every answer", 40, 24),
        (1, "under 20 tokens", 5, 12),
        (1, "60 and more tokens", 40, 12),
    ]
    assert equal.rows[0]["less"].mean == -5
