"""The main table by length of the answer, and where each selection breaks, from records of `passes`.

Responsible for means, paired differences, the point from which a selection holds, and their tables and plot.
Not responsible for measuring (see `passes`, `equal_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from lab.statistics import Summary, difference, summary
from lab.store import Record
from lab.tables import LENGTHS, Row, Table

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


def _title(length: str, report: Record) -> str:
    return (
        f"Answers of {length} tokens: {report['prompts']} prompts, full run right {report['full_right']:.3f}"
    )


def _summary(found: Mapping[str, Any] | None) -> Summary | None:
    """A figure of a row as a cell; a paired difference has its verdict beside it."""
    return Summary(**{key: found[key] for key in ("n", "mean", "std", "low", "high")}) if found else None


def _one_length(length: str, report: Record, total: int) -> Iterator[Table]:
    """Every condition after every number of passes, and from where it holds."""
    rows: list[Row] = [
        {
            "passes": share(row["passes"], total),
            "condition": row["condition"],
            "F1": _summary(row["f1"]),
            "F1, target less it": _summary(row.get("f1_less")),
            "right": _summary(row["right"]),
            "right, target less it": _summary(row.get("right_less")),
            "sent": float(row["sent"]),
            "bytes": float(row["bytes"]),
        }
        for row in report["rows"]
    ]
    note = f"Target: {report['target']}."
    yield Table(f"length {length}", _title(length, report), list(rows[0]), rows, note)
    holds: list[Row] = [
        {
            "condition": name,
            f"F1 of {KEPT:g} from": _from(found["f1"], total),
            f"{KEPT:g} of the right answers from": _from(found["right"], total),
        }
        for name, found in report["holds"].items()
    ]
    yield Table(f"holds {length}", f"{_title(length, report)}: from where it holds", list(holds[0]), holds)


def _from(passes: int | None, total: int) -> str:
    return "at none" if passes is None else share(passes, total)


def _side_by_side(lengths: Mapping[str, Record], total: int) -> Table:
    """The same figures with the lengths beside one another."""
    rows: dict[tuple[int, str], Row] = {}
    for length, report in lengths.items():
        for row in report["rows"]:
            cells = rows.setdefault(
                (row["passes"], row["condition"]),
                {"passes": share(row["passes"], total), "condition": row["condition"]},
            )
            cells[f"F1, {length}"] = _summary(row["f1"])
            cells[f"right, {length}"] = _summary(row["right"])
            cells[f"bytes, {length}"] = float(row["bytes"])
    full: Row = {"passes": share(total, total), "condition": FULL_RUN}
    for length, report in lengths.items():
        full |= {f"F1, {length}": 1.0, f"right, {length}": report["full_right"]}
    found = [*(rows[key] for key in sorted(rows, key=lambda key: key[0])), full]
    columns = list(dict.fromkeys(column for row in found for column in row))
    prompts = ", ".join(f"{length}: {report['prompts']}" for length, report in lengths.items())
    return Table("by length", "By tokens of the answer", columns, found, f"Prompts by tokens: {prompts}.")


def length_tables(lengths: Mapping[str, Record], total: int) -> list[Table]:
    """The tables of the reports by length, and of all lengths side by side.

    total: steps of the full run.
    """
    found = [_side_by_side(lengths, total)]
    for length, report in lengths.items():
        found += _one_length(length, report, total)
    return found


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
