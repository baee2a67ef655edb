"""Tables as data, and the samples of answers that phases derive them from.

Responsible for cells, columns and rows, and for grouping answers and pairing them by item. Not responsible
for the numbers' origin or presentation (see `report`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from lab.statistics import Correlation, Summary, difference, share, summary

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

    @classmethod
    def of(cls, name: str, title: str, rows: Sequence[Row], note: str = "") -> Table:
        """A table with the columns of its first row; without rows it has none."""
        return cls(name, title, tuple(rows[0]) if rows else (), rows, note)

    @property
    def frame(self) -> pd.DataFrame:
        """The cells as text."""
        shown = [[show(row.get(column)) for column in self.columns] for row in self.rows]
        return pd.DataFrame(shown, columns=list(self.columns))

    def to_json(self) -> dict[str, Any]:
        rows = [{column: cell_json(row.get(column)) for column in self.columns} for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Table:
        rows = [{column: cell_of(value) for column, value in row.items()} for row in data["rows"]]
        return cls(name, data["title"], data["columns"], rows, data["note"])

    def text(self) -> str:
        """For a terminal."""
        return f"\n{self.title}\n\n{_printed(self.frame, 'plain')}"


def _printed(frame: pd.DataFrame, style: str) -> str:
    text: str = frame.to_markdown(index=False, tablefmt=style, disable_numparse=True)
    return text


def markdown(frame: pd.DataFrame) -> str:
    """A table of texts in Markdown."""
    return _printed(frame.replace({"\\|": "\\\\|", "\n": " "}, regex=True), "github")


def cell_json(cell: Cell) -> Any:
    """A cell as JSON; NaN and infinities are null."""
    if isinstance(cell, Summary | Correlation):
        return {name: cell_json(value) for name, value in asdict(cell).items()}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def cell_of(value: Any) -> Cell:
    """A cell from `cell_json`'s form."""
    if not isinstance(value, Mapping):
        return value  # type: ignore[no-any-return]
    kind: Any = Correlation if "rho" in value else Summary
    found: Summary | Correlation = kind(**{k: math.nan if v is None else v for k, v in value.items()})
    return found


def number(value: float) -> str:
    """A number as text: three decimals below 10, else one."""
    if not math.isfinite(value):
        return "none"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def show(cell: Cell) -> str:
    """A cell as text."""
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


LENGTHS: Mapping[str, tuple[int, float]] = {
    "under 20": (0, 20),
    "20 to 59": (20, 60),
    "60 and more": (60, math.inf),
}
"""Groups of answers by their tokens: from, and below."""


SHARES = frozenset(("right", "exact", "same", "full run", "first right"))
"""Metrics of zeros and ones."""


@dataclass(frozen=True)
class Answers:
    """Measured answers, one per row, each with the `id` of its item, and its `subject` where it has one."""

    rows: Sequence[dict[str, Any]] = field(default_factory=tuple)

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]], key: str = "answers") -> Answers:
        """All rows under `key` of the records, each with its item's id, benchmark and difficulty."""
        rows = []
        for record in records:
            about = {name: record.get(name) for name in ("id", "benchmark", "difficulty", "subject")}
            rows += [{**about, **row} for row in record.get(key, ())]
        return cls(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, **equal: Any) -> Answers:
        """The rows in which every named field has the given value."""
        return Answers([r for r in self.rows if all(r.get(key) == value for key, value in equal.items())])

    def values(self, metric: str) -> list[float]:
        """The values of a metric; rows without one are left out."""
        return [float(row[metric]) for row in self.rows if row.get(metric) is not None]

    def cell(self, metric: str) -> Summary | None:
        """The summary of a metric; None without values."""
        found = [row for row in self.rows if row.get(metric) is not None]
        values, subjects = [float(row[metric]) for row in found], [row.get("subject") for row in found]
        return (share if metric in SHARES else summary)(values, subjects) if found else None

    def groups(self, *keys: str) -> Iterator[tuple[tuple[Any, ...], Answers]]:
        """Rows by the values of these fields, in the order in which they first appear."""
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        for values, rows in found.items():
            yield values, Answers(rows)

    def by(self, labels: Mapping[str, Label]) -> Iterator[tuple[Row, Answers]]:
        """Rows by their labels, for `rows`: column -> a field, or a field and how its value is shown."""
        named = {
            column: (label, None) if isinstance(label, str) else label for column, label in labels.items()
        }
        for values, group in self.groups(*(field_ for field_, _ in named.values())):
            shown = zip(named.items(), values, strict=True)
            yield {column: how(value) if how else value for (column, (_, how)), value in shown}, group

    def table(
        self,
        name: str,
        title: str,
        labels: Mapping[str, Label],
        columns: Mapping[str, Column],
        note: str = "",
    ) -> Table:
        """A table with a row for each value of the labels (see `by` and `rows`)."""
        return Table.of(name, title, rows(self.by(labels), columns), note)

    def pairs(self, other: Answers, metric: str) -> tuple[list[float], list[float]]:
        """The metric of both, item by item, over the items of both. One row per item is expected."""
        mine = {row["id"]: row[metric] for row in self.rows if row.get(metric) is not None}
        theirs = {row["id"]: row[metric] for row in other.rows if row.get(metric) is not None}
        common = [key for key in mine if key in theirs]
        return [float(mine[key]) for key in common], [float(theirs[key]) for key in common]

    def less(self, other: Answers, metric: str) -> Summary | None:
        """Paired differences of a metric, this less the other; None without common items."""
        first, second = self.pairs(other, metric)
        common = {row["id"] for row in other.rows if row.get(metric) is not None}
        about = {row["id"]: row.get("subject") for row in self.rows if row.get(metric) is not None}
        subjects = [subject for id_, subject in about.items() if id_ in common]
        return difference(first, second, subjects, shares=metric in SHARES) if first else None


Label = str | tuple[str, Callable[[Any], Cell]]
Figure = Callable[[Answers], Cell]
Column = str | Figure


Groups = Iterable[tuple[Row, Answers]]


def rows(groups: Groups, columns: Mapping[str, Column]) -> list[Row]:
    """A row per group: its labels, then each column, the summary of a metric or what is made of the group."""
    return [
        labels
        | {name: group.cell(how) if isinstance(how, str) else how(group) for name, how in columns.items()}
        for labels, group in groups
    ]


def mean(metric: str) -> Figure:
    """The mean of a metric alone, without an interval."""

    def of(group: Answers) -> Cell:
        values = group.values(metric)
        return sum(values) / len(values) if values else None

    return of


def less_than(other: Callable[[Answers], Answers] | Answers, metric: str, *, turned: bool = False) -> Figure:
    """The paired difference of a metric, the group's less the other's; turned: the other way round."""

    def of(group: Answers) -> Cell:
        beside = other if isinstance(other, Answers) else other(group)
        return beside.less(group, metric) if turned else group.less(beside, metric)

    return of


def against(answers: Answers, metric: str, *same: str, **control: Any) -> Figure:
    """The paired difference of a metric, the group's less that of the rows `control` with its own values of
    the fields `same`.
    """

    def of(group: Answers) -> Cell:
        wanted = {name: group.rows[0].get(name) for name in same} | control
        return less_than(answers.where(**wanted), metric)(group)

    return of


METRICS = {
    "F1": "f1",
    "edit": "edit",
    "exact": "exact",
    "right": "right",
    "sent": "sent",
    "bytes": "bytes",
    "passes": "passes",
    "tokens": "tokens",
}
"""Column -> field. edit is token edit similarity; exact is the full run's text."""

MEASURES_NOTE = (
    "F1, edit similarity and exact match are against the same run's finished answer; right is the "
    "checkable answer. Cells: mean ± standard deviation [95% bootstrap interval]."
)


def metric_columns(columns: Iterable[str] = METRICS) -> dict[str, Column]:
    """N and the summary of each metric."""
    return {"N": len, **{column: METRICS[column] for column in columns}}
