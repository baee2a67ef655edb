"""`python -m lab compare A B`: agreement of two runs, for example with two seeds.

Responsible for comparing the means in two files tables.json. Not responsible for how they were measured. Two
means agree where their distance is at most the sum of the half widths of their 95% intervals; about one cell
in two hundred is expected to fail by chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.cli import CommandParser
from lab.store import TABLES


@dataclass(frozen=True)
class CellComparison:
    """One cell of both runs: its two means and the allowed distance."""

    table: str
    row: int
    column: str
    first: float
    second: float
    allowed: float

    @property
    def within(self) -> bool:
        return abs(self.first - self.second) <= self.allowed


def read_tables(folder: Path) -> dict[str, Any]:
    """tables.json of a results folder; raises RequestError."""
    path = folder / TABLES
    try:
        data = json.loads(path.read_bytes())
        tables: dict[str, Any] = data["tables"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{path}: expected the tables of a finished run, found: {error!r}") from error
    return tables


def comparisons(first: dict[str, Any], second: dict[str, Any]) -> Iterator[CellComparison]:
    """Every mean with an interval that both runs have, in rows with the same labels.

    Times are left out, since they depend on the machine.
    """
    for name in first.keys() & second.keys() - {"timing", "memory"}:
        others = {_label(row): row for row in second[name]["rows"]}
        for index, row in enumerate(first[name]["rows"]):
            other = others.get(_label(row))
            for column, cell in row.items():
                if other is None or not _estimate(cell) or not _estimate(other.get(column)):
                    continue
                twin = other[column]
                allowed = (cell["high"] - cell["low"] + twin["high"] - twin["low"]) / 2
                yield CellComparison(name, index, column, cell["mean"], twin["mean"], allowed)


SETTINGS = ("layer", "p >=", "lookahead", "gamma", "steps", "T")
"""Numeric columns that are labels of a row."""


def _label(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The labels of a row: its texts and settings."""
    return tuple(
        (c, cell)
        for c, cell in row.items()
        if isinstance(cell, str) or (c in SETTINGS and not _estimate(cell))
    )


def _estimate(cell: Any) -> bool:
    return isinstance(cell, dict) and "low" in cell


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(prog="python -m lab compare", description="Compare the means of two runs.")
    parser.add_argument("first", type=Path, metavar="A", help="results folder")
    parser.add_argument("second", type=Path, metavar="B", help="results folder of another seed")
    args = parser.parse_args(arguments)
    found = list(comparisons(read_tables(args.first), read_tables(args.second)))
    if not found:
        raise RequestError("expected two runs with cells in common, found none. Run the same phases in both.")
    outside = [move for move in found if not move.within]
    for move in outside:
        print(
            f"{move.table}, row {move.row}, {move.column}: {move.first:.3f} and {move.second:.3f}, allowed "
            f"{move.allowed:.3f}"
        )
    print(f"{len(found) - len(outside)} of {len(found)} means agree within their intervals")
    return 0 if len(outside) <= 0.02 * len(found) else 1
