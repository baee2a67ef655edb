"""The main table by length of the answer, and where each selection breaks, from records of `passes`.

Responsible for the point from which a selection holds, and for tables and plot. Not responsible for measuring
(see `passes`, `equal_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.conditions import ALONE, ANCHORS, PREFIX
from lab.plots import COLOURS, MARKERS, band, png
from lab.store import Record
from lab.tables import LENGTHS, Answers, Column, Row, Table, less_than, mean, rows

LENGTH_GROUPS: Mapping[str, tuple[int, float]] = {
    **LENGTHS,
    "60 to 119": (60, 120),
    "120 and more": (120, math.inf),
}
"""Groups of answers by the tokens of the full run's: from, and below. The last two are parts of another."""

KEPT = 0.9
"""A selection holds where it has this share of the full run's right answers, and this F1 with it."""

EARLY, AWARE = "early stop: every prediction", "edge-aware"
FULL_RUN = "full run"


def readout_name(what: str, rule: str) -> str:
    """A readout of a rule's run as the table names it."""
    return f"{what}, rule {rule}"


def by_length(
    records: Sequence[Record], groups: Mapping[str, tuple[int, float]] = LENGTHS
) -> dict[str, list[Record]]:
    """The records in the groups that have any."""
    found = {
        name: [record for record in records if low <= record["tokens"] < high]
        for name, (low, high) in groups.items()
    }
    return {name: part for name, part in found.items() if part}


class LengthGroup:
    """The answers of one length, by condition: controls, then the readouts of every rule."""

    def __init__(
        self, records: Sequence[Record], readouts: Mapping[str, str], target: str, total: int
    ) -> None:
        """readouts: a readout's name in the record -> in the table. target: rule. total: steps."""
        self.count, self.total = len(records), total
        self.right, self.graded = (
            sum(record["full"][metric] for record in records) / len(records) for metric in ("right", "graded")
        )
        self.target = readout_name(AWARE, target)
        found = []
        for record in records:
            for passes in sorted(record["controls"], key=int):
                conditions = dict(record["controls"][passes])
                for name, shown in readouts.items():
                    for rule, cells in record["rules"].items():
                        conditions[readout_name(shown, rule)] = cells[passes][name]
                found += [
                    {
                        "id": record["id"],
                        "subject": record.get("subject"),
                        "passes": int(passes),
                        "condition": name,
                        **figures,
                    }
                    for name, figures in conditions.items()
                ]
        self.answers = Answers(found)

    @property
    def conditions(self) -> list[str]:
        return [name for (name,), _ in self.answers.groups("condition")]

    def share(self, passes: int) -> str:
        return f"{passes} ({passes / self.total:.0%})"

    def by(self) -> Iterator[tuple[Row, Answers]]:
        """The groups of the tables' rows."""
        yield from self.answers.by({"passes": ("passes", self.share), "condition": "condition"})

    def curve(self, condition: str, metric: str) -> dict[int, Any]:
        """The summary of a metric by passes."""
        here = self.answers.where(condition=condition)
        return {passes: group.cell(metric) for (passes,), group in here.groups("passes")}

    def holds(self, condition: str, metric: str, wanted: float) -> str:
        """The fewest passes from which on every measured mean is at least `wanted`."""
        means = {passes: cell.mean for passes, cell in self.curve(condition, metric).items()}
        found = holds_from(means, wanted)
        return "at none" if found is None else self.share(found)

    def tables(self, length: str) -> Iterator[Table]:
        """Every condition after every number of passes, and from where it holds."""
        aware = self.answers.where(condition=self.target)

        def target(group: Answers) -> Answers:
            """The target's answers after as many passes; none for the target itself."""
            first = group.rows[0]
            return Answers() if first["condition"] == self.target else aware.where(passes=first["passes"])

        title = f"Answers of {length} tokens: {self.count} prompts, full run right {self.right:.3f}"
        columns: dict[str, Column] = {
            "F1": "f1",
            "F1, target less it": less_than(target, "f1", turned=True),
            "graded": "graded",
            "graded, target less it": less_than(target, "graded", turned=True),
            "right": "right",
            "right, target less it": less_than(target, "right", turned=True),
            "sent": mean("sent"),
            "bytes": mean("bytes"),
        }
        yield Table.of(f"length {length}", title, rows(self.by(), columns), f"Target: {self.target}.")
        yield Table.of(
            f"holds {length}",
            f"{title}: from where it holds",
            [
                {
                    "condition": name,
                    f"F1 of {KEPT:g} from": self.holds(name, "f1", KEPT),
                    f"{KEPT:g} of the right answers from": self.holds(name, "right", KEPT * self.right)
                    if self.right
                    else "at none",
                }
                for name in self.conditions
            ],
        )


def holds_from(curve: Mapping[int, float], wanted: float) -> int | None:
    """The fewest passes from which on every measured mean is at least `wanted`."""
    found = None
    for passes in sorted(curve, reverse=True):
        if curve[passes] < wanted:
            break
        found = passes
    return found


def length_tables(groups: Mapping[str, LengthGroup]) -> list[Table]:
    """The figures with the lengths beside one another, and then each length's own."""
    beside: dict[tuple[Any, ...], Row] = {}
    total = next(iter(groups.values())).total
    full: Row = {"passes": next(iter(groups.values())).share(total), "condition": FULL_RUN}
    for length, group in groups.items():
        columns: dict[str, Column] = {
            f"F1, {length}": "f1",
            f"graded, {length}": "graded",
            f"right, {length}": "right",
            f"bytes, {length}": mean("bytes"),
        }
        for row in rows(group.by(), columns):
            beside.setdefault((row["passes"], row["condition"]), {}).update(row)
        full |= {f"F1, {length}": 1.0, f"graded, {length}": group.graded, f"right, {length}": group.right}
    found = [*sorted(beside.values(), key=lambda row: int(str(row["passes"]).split()[0])), full]
    names = list(dict.fromkeys(column for row in found for column in row))
    prompts = ", ".join(f"{length}: {group.count}" for length, group in groups.items())
    note = f"F1 is against the finished answer of the row's own run. Prompts by tokens: {prompts}."
    first = Table("by length", "By tokens of the answer", names, found, note)
    return [first, *(table for length, group in groups.items() for table in group.tables(length))]


def length_plot(groups: Mapping[str, LengthGroup]) -> bytes:
    """The share told of what was asked, over the share of the steps: a panel a length, five lines."""
    shown = {name: group for name, group in groups.items() if name in LENGTHS}

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        for axes, (length, group) in zip(panels, shown.items(), strict=True):
            lines = {
                group.target: "edge-aware",
                ANCHORS: "the paper",
                PREFIX: "prefix",
                ALONE: "device alone",
            }
            for (name, label), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
                curve = group.curve(name, "graded")
                steps, cells = [100 * passes / group.total for passes in curve], list(curve.values())
                band(axes, steps, cells, 0.12, color=colour, marker=marker, label=label)
            axes.axhline(group.graded, linestyle="--", color=COLOURS[-1], linewidth=1, label=FULL_RUN)
            axes.set(xlabel="% of the steps", ylim=(0, 1.02))
            axes.set_title(f"{length} tokens (N = {group.count})", fontsize=9)
        panels[0].set_ylabel("share told of what was asked")
        panels[0].legend(fontsize=8)

    return png(draw, (12, 4))
