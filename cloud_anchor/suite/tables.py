"""Tables and claims as data, and the sample of answers that phases make them of.

Knows cells, columns and rows, and how answers are grouped and paired by item. Does not know where the numbers
come from or how they are shown (see `report`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cloud_anchor.suite.statistics import Correlation, Difference, Summary, difference, summary

Cell = str | int | float | None | Summary | Correlation
Row = dict[str, Cell]


@dataclass(frozen=True)
class Table:
    """A table of the report. name: unique, the key of its JSON. Rows may leave columns out."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        rows = [{column: cell_json(row.get(column)) for column in self.columns} for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}


def cell_json(cell: Cell) -> Any:
    """A cell as JSON; a number that is none is null."""
    if isinstance(cell, Summary | Correlation):
        return cell.to_json()
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def number(value: float) -> str:
    """Three decimals below 10, one from there on."""
    if not math.isfinite(value):
        return "none"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def show(cell: Cell) -> str:
    """A cell in a line of text."""
    match cell:
        case None:
            return ""
        case Summary():
            interval = f"[{number(cell.low)}, {number(cell.high)}]"
            return f"{number(cell.mean)} ±{number(cell.std)} {interval}"
        case Correlation():
            if not math.isfinite(cell.rho):
                return f"none (N {cell.n})"
            return f"{cell.rho:+.3f} (p {cell.p:.2g}, N {cell.n})"
        case float():
            return f"{cell:.2e}" if 0 < abs(cell) < 0.001 else number(cell)
        case _:
            return str(cell)


@dataclass(frozen=True)
class Claim:
    """What the paper says, and what these figures say to it.

    verdict: "holds", "does not hold" or "undecided", chosen by intervals. found: the figures in a sentence.
    why: what else was measured that bears on it, if anything. where: order of commits and steps.
    """

    paper: str
    verdict: str
    found: str
    why: str = ""
    where: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


LEAST = 20
"""Items below which nothing is decided: a bootstrap of so few is too narrow."""


def verdict(holds: bool, fails: bool, n: int = LEAST) -> str:
    """In words; neither, or fewer than `LEAST` items, is "undecided"."""
    return "undecided" if n < LEAST else "holds" if holds else "does not hold" if fails else "undecided"


@dataclass(frozen=True)
class Answers:
    """Measured answers, one a row, each with the `id` of its item."""

    rows: Sequence[dict[str, Any]] = field(default_factory=tuple)

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]], key: str = "answers") -> Answers:
        """All rows under `key` of the records, each with its item's id, benchmark and difficulty."""
        rows = []
        for record in records:
            about = {name: record[name] for name in ("id", "benchmark", "difficulty")}
            rows += [{**about, **row} for row in record.get(key, ())]
        return cls(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, **equal: Any) -> Answers:
        """The rows in which every named field has the given value."""
        return Answers([r for r in self.rows if all(r.get(key) == value for key, value in equal.items())])

    def values(self, metric: str) -> list[float]:
        """The metric's values, where it has one."""
        return [float(row[metric]) for row in self.rows if row.get(metric) is not None]

    def cell(self, metric: str) -> Summary | None:
        values = self.values(metric)
        return summary(values) if values else None

    def groups(self, *keys: str) -> Iterator[tuple[tuple[Any, ...], Answers]]:
        """Rows by the values of these fields, in the order in which they first appear."""
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        for values, rows in found.items():
            yield values, Answers(rows)

    def pairs(self, other: Answers, metric: str) -> tuple[list[float], list[float]]:
        """The metric of both, item by item, over the items that both have. One row an item is expected."""
        mine = {row["id"]: row[metric] for row in self.rows if row.get(metric) is not None}
        theirs = {row["id"]: row[metric] for row in other.rows if row.get(metric) is not None}
        common = [key for key in mine if key in theirs]
        return [float(mine[key]) for key in common], [float(theirs[key]) for key in common]

    def less(self, other: Answers, metric: str) -> Difference | None:
        """This less the other, item by item; None where no item has both."""
        first, second = self.pairs(other, metric)
        return difference(first, second) if first else None


METRICS = {
    "F1": "f1",
    "F1 (sets)": "f1_set",
    "chrF": "chrf",
    "edit": "edit",
    "exact": "exact",
    "right": "right",
    "sent": "sent",
    "bytes": "bytes",
    "passes": "passes",
    "tokens": "tokens",
}
"""Column -> field. F1 is the multiset one; edit is token edit similarity; exact is the full run's text."""

MEASURES_NOTE = (
    "F1, chrF, edit similarity and exact match are against the full diffusion run; right is the checkable "
    "answer. Cells: mean ± standard deviation [95% bootstrap interval]."
)


def metric_cells(answers: Answers, columns: Iterable[str] = METRICS) -> Row:
    """N and the summary of each metric."""
    cells: Row = {"N": len(answers)}
    cells.update({column: answers.cell(METRICS[column]) for column in columns})
    return cells


LABELS = {
    "f1": "F1",
    "right": "right answers",
    "chrf": "chrF",
    "edit": "edit similarity",
    "gap_f1": "gap-only F1",
    "gap_accuracy": "gap-token accuracy",
}
"""Measures as a sentence names them."""


EQUAL = 0.01
"""A difference of measures from 0 to 1 whose whole interval is closer to 0 than this is none."""


def more(result: str) -> str:
    """The verdict on "more", by what `compare` has found."""
    return verdict(result == "higher", result in ("lower", "equal"))


def less(result: str) -> str:
    """The verdict on "less"."""
    return verdict(result == "lower", result in ("higher", "equal"))


def compare(name: str, first: Answers, other: str, second: Answers, metric: str = "f1") -> tuple[str, str]:
    """Which is larger, as far as the paired interval tells: a sentence, and "higher", "lower", "equal" or
    "undecided".
    """
    found = first.less(second, metric)
    if found is None:
        return f"{name} and {other} have no item in common", "undecided"
    s = found.summary
    label = LABELS.get(metric, metric)
    words = {
        "higher": f"{name}: more {label} than {other}",
        "lower": f"{name}: less {label} than {other}",
        "undecided": f"{name} and {other} cannot be told apart in {label}",
        "equal": f"{name} and {other} are equal in {label} to within {EQUAL}",
        "too few": f"{name} and {other}: too few items to tell them apart in {label}",
    }
    result: str = found.verdict if s.n >= LEAST else "too few"
    if s.n >= LEAST and metric in LABELS and s.low > -EQUAL and s.high < EQUAL:
        result = "equal"
    means = " against ".join(f"{sum(values) / s.n:.3f}" for values in first.pairs(second, metric))
    return (
        f"{words[result]} ({means}; paired difference {s.mean:+.3f} [{s.low:+.3f}, {s.high:+.3f}], N = "
        f"{s.n})",
        "undecided" if result == "too few" else result,
    )
