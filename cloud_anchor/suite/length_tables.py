"""The main table by length of the answer, and where each selection breaks, from records of `passes`.

Responsible for means, paired differences, the point from which a selection holds, and their tables and plot.
Not responsible for measuring (see `passes`, `equal_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from rich.table import Table

from cloud_anchor.suite.statistics import Summary, difference, summary
from cloud_anchor.suite.store import Record
from cloud_anchor.suite.tables import LENGTHS

LENGTH_GROUPS: Mapping[str, tuple[int, float]] = {
    **LENGTHS,
    "60 to 119": (60, 120),
    "120 and more": (120, math.inf),
}
"""Groups of answers by the tokens of the full run's: from, and below. The last two are parts of another."""

KEPT = 0.9
"""A selection holds where it has this share of the full run's right answers, and this F1 with it."""

EARLY, AWARE = "early stop: every prediction", "edge-aware"


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


def samples(
    record: Record, passes: str, rules: Sequence[str], readouts: Mapping[str, str]
) -> dict[str, Record]:
    """One record's figures after so many passes, by the name in the table: controls, then readouts.

    readouts: a readout's name in the record -> its name in the table.
    """
    found: dict[str, Record] = dict(record["controls"][passes])
    for name, shown in readouts.items():
        found |= {readout_name(shown, rule): record["rules"][rule][passes][name] for rule in rules}
    return found


def length_report(
    records: Sequence[Record], rules: Sequence[str], target: str, readouts: Mapping[str, str]
) -> Record:
    """The figures of some records.

    rows: a row per number of passes and condition: means of f1 and right with their intervals, tokens and
          bytes sent, and the paired differences of the target, `AWARE` of this rule, less the condition.
    holds: by condition, the fewest passes from which on it holds in f1 and in right; None for none.
    """
    aware = readout_name(AWARE, target)
    right = sum(record["full"]["right"] for record in records) / len(records)
    rows: list[Record] = []
    for passes in sorted(records[0]["controls"], key=int):
        found = [samples(record, passes, rules, readouts) for record in records]
        for name in found[0]:
            row: Record = {"passes": int(passes), "condition": name, "n": len(found)}
            row |= {key: sum(one[name][key] for one in found) / len(found) for key in ("sent", "bytes")}
            for metric in ("f1", "right"):
                values = [one[name][metric] for one in found]
                row[metric] = summary(values).to_json()
                if name != aware:
                    less = difference([one[aware][metric] for one in found], values)
                    row[f"{metric}_less"] = less.summary.to_json() | {"verdict": less.verdict}
            rows.append(row)
    names = list(dict.fromkeys(row["condition"] for row in rows))
    curves = {
        name: {
            metric: {row["passes"]: row[metric]["mean"] for row in rows if row["condition"] == name}
            for metric in ("f1", "right")
        }
        for name in names
    }
    holds = {
        name: {
            "f1": holds_from(curve["f1"], KEPT),
            "right": holds_from(curve["right"], KEPT * right) if right else None,
        }
        for name, curve in curves.items()
    }
    return {"prompts": len(records), "full_right": right, "target": aware, "rows": rows, "holds": holds}


def holds_from(curve: Mapping[int, float], wanted: float) -> int | None:
    """The fewest passes from which on every measured mean is at least `wanted`."""
    found = None
    for passes in sorted(curve, reverse=True):
        if curve[passes] < wanted:
            break
        found = passes
    return found


def share(passes: int, total: int) -> str:
    return f"{passes} ({passes / total:.0%})"


def _cells(report: Record, total: int) -> Iterator[tuple[str, ...]]:
    for row in report["rows"]:
        cells = [share(row["passes"], total), row["condition"]]
        for metric in ("f1", "right"):
            cells.append(f"{row[metric]['mean']:.3f} [{row[metric]['low']:.3f}, {row[metric]['high']:.3f}]")
            less = row.get(f"{metric}_less")
            cells.append(f"{less['mean']:+.3f} [{less['low']:+.3f}, {less['high']:+.3f}]" if less else "")
        yield (*cells, f"{row['sent']:.1f}", f"{row['bytes']:.1f}")


HEADS = (
    "passes",
    "condition",
    "F1 [95%]",
    "target less it",
    "right [95%]",
    "target less it",
    "sent",
    "bytes",
)
BREAKS = ("condition", f"F1 of {KEPT:g} from", f"{KEPT:g} of the right answers from")


def _breaks(report: Record, total: int) -> Iterator[tuple[str, ...]]:
    for name, found in report["holds"].items():
        shown = ("at none" if found[m] is None else share(found[m], total) for m in ("f1", "right"))
        yield (name, *shown)


def _title(length: str, report: Record) -> str:
    return (
        f"Answers of {length} tokens: {report['prompts']} prompts, full run right {report['full_right']:.3f}"
    )


def length_views(lengths: Mapping[str, Record], total: int) -> Iterator[Table]:
    """Two tables a group: every condition after every number of passes, and from where it holds."""
    for length, report in lengths.items():
        for heads, rows in ((HEADS, _cells(report, total)), (BREAKS, _breaks(report, total))):
            table = Table(title=_title(length, report), caption=f"target: {report['target']}")
            for head in heads:
                table.add_column(head, justify="left" if head == "condition" else "right")
            for row in rows:
                table.add_row(*row)
            yield table


def length_markdown(lengths: Mapping[str, Record], total: int) -> str:
    """The same as Markdown."""
    lines = []
    for length, report in lengths.items():
        lines += [f"## {_title(length, report)}", "", f"Target: {report['target']}.", ""]
        for heads, rows in ((HEADS, _cells(report, total)), (BREAKS, _breaks(report, total))):
            lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
            lines += [f"| {' | '.join(row)} |" for row in rows]
            lines.append("")
    return "\n".join(lines)


def length_plot(lengths: Mapping[str, Record], total: int) -> bytes:
    """F1 and right answers over the share of the steps, a row a group and a line a condition, as PNG."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    colours = colormaps["tab20"]
    figure = Figure(figsize=(12, 3.4 * len(lengths) + 1.2), layout="constrained")
    grid: Any = figure.subplots(len(lengths), 2, squeeze=False)
    for line, (length, report) in zip(grid, lengths.items(), strict=True):
        for axes, metric, wanted in zip(
            line, ("f1", "right"), (KEPT, KEPT * report["full_right"]), strict=True
        ):
            for index, name in enumerate(report["holds"]):
                rows = [row for row in report["rows"] if row["condition"] == name]
                steps = [100 * row["passes"] / total for row in rows]
                means = [Summary(**row[metric]) for row in rows]
                width = 2.2 if name == report["target"] else 1
                marker, colour = "osD^v<>pPX*hH"[index % 13], colours(index % 20)
                axes.plot(
                    steps,
                    [m.mean for m in means],
                    marker=marker,
                    markersize=4,
                    color=colour,
                    label=name,
                    lw=width,
                )
                axes.fill_between(
                    steps, [m.low for m in means], [m.high for m in means], color=colour, alpha=0.06
                )
            axes.axhline(wanted, linestyle=":", color="black", linewidth=0.8)
            axes.set(xlabel="% of the steps", ylabel="F1" if metric == "f1" else "right answers")
            axes.set_title(f"{length} tokens (N = {report['prompts']})", fontsize=9)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()
