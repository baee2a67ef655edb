"""The table and the plot of the methods over the networks.

Responsible for Markdown and PNG. Not responsible for the figures (see `standings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from lab.rivals.methods import REFINED, SKETCH, WHOLE
from lab.rivals.standings import Figures

COLUMNS = (
    "method",
    "bytes up",
    "bytes down",
    "requests",
    "first token, s",
    "last token, s",
    "came to its end",
    "right",
    "right, less the reference",
    "last token, less the reference",
)


def markdown(report: Mapping[str, Any]) -> str:
    """The table of a report, whole or `without_curves`: what no network changes, then a part a network."""
    rows: Sequence[Figures] = report["rows"]
    losses = report["losses"]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    first = [row for row in rows if row["network"] == networks[0] and row["loss"] == losses[0]]
    shares = " / ".join(f"{loss:.0%}" for loss in losses)
    lines = [
        "| method | right | less the reference [95%] | requests | cloud passes | edge passes in the cloud | "
        "cloud passes x parameters, millions |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in first:
        lines.append(
            f"| {row['method']} | {row['right']['mean']:.3f} [{row['right']['low']:.3f}, "
            f"{row['right']['high']:.3f}] | {_difference(row['difference']['right'])} | "
            f"{row['requests']:.1f} | {row['passes']:.1f} | {row['edge_passes']:.1f} | "
            f"{row['work'] / 1e6:.1f} |"
        )
    lines += [
        "",
        f"Right is of the whole answer, at {losses[0]:.0%} loss. Below, where figures stand side by side: "
        f"{shares} loss; differences are at {losses[-1]:.0%}, bytes at {losses[0]:.0%}.",
    ]
    for network in networks:
        lines += ["", f"**{network}**", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        here = [row for row in rows if row["network"] == network]
        for method in dict.fromkeys(row["method"] for row in here):
            lines.append(
                f"| {' | '.join(_cells(method, [row for row in here if row['method'] == method]))} |"
            )
    return "\n".join(lines) + "\n"


DIGITS = 6
"""Significant digits of figures as JSON: more than the table shows."""


def without_curves(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report as JSON that the table can be made of again: rounded, without the plot's lines."""
    rows = [
        {name: _rounded(value) for name, value in row.items() if name not in ("times", "curve")}
        for row in report["rows"]
    ]
    return {**report, "rows": rows}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _cells(method: str, rows: Sequence[Figures]) -> Iterator[str]:
    """The cells of one method over one network; rows by loss."""
    yield method
    for name in ("up", "down"):
        yield f"{rows[0][name]['mean']:.0f}"
    yield f"{rows[0]['requests']:.1f}"
    for name in ("first", "last"):
        yield " / ".join(_seconds(row[name]) for row in rows)
    yield " / ".join(f"{row['success']['mean']:.0%}" for row in rows)
    yield " / ".join(f"{row['right']['mean']:.2f}" for row in rows)
    yield _difference(rows[-1]["difference"]["right"], 2)
    yield _difference(rows[-1]["difference"]["last"], 2)


def _seconds(found: Mapping[str, float] | None) -> str:
    return "none" if found is None else f"{found['mean']:.2f}"


def _difference(found: Mapping[str, float] | None, digits: int = 3) -> str:
    if found is None:
        return "none"
    return f"{found['mean']:+.{digits}f} [{found['low']:+.{digits}f}, {found['high']:+.{digits}f}]"


def plot_race(report: Mapping[str, Any], loss: float) -> bytes:
    """Share of right answers over time: a panel a network, a line a method, as PNG."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    rows = [row for row in report["rows"] if row["loss"] == loss]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    across = 2 if len(networks) > 1 else 1
    down = -(-(len(networks) + 1) // across)
    figure = Figure(figsize=(6.5 * across, 3.6 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    colours = colormaps["tab20"]
    for axes, network in zip(panels, networks, strict=False):
        here = [row for row in rows if row["network"] == network]
        for index, row in enumerate(here):
            style = _style(row["method"])
            axes.plot(
                row["times"],
                row["curve"],
                drawstyle="steps-post",
                color=colours(index % 20),
                label=row["method"],
                **style,
            )
        moved = [
            time
            for row in here
            for time, value, before in zip(row["times"], row["curve"], [0.0, *row["curve"]], strict=False)
            if value != before
        ]
        if moved:
            axes.set_xlim(min(moved) * 0.7, max(moved) * 1.3)
        axes.set(xscale="log", ylim=(-0.02, 1.02), title=f"{network}, {loss:.0%} loss")
        axes.set_xlabel("seconds from the question")
        axes.set_ylabel("whole answer shown and right")
        axes.grid(alpha=0.3, which="both", linewidth=0.4)
    handles = panels[0].get_legend_handles_labels()
    for axes in panels[len(networks) :]:
        axes.axis("off")
    panels[-1].legend(*handles, loc="center", fontsize=9, frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def _style(method: str) -> dict[str, Any]:
    """Ours thick, whole answers dashed, early stops dotted."""
    if method.startswith("ours"):
        return {"linewidth": 2.4, "linestyle": "-." if method == REFINED else "-"}
    if method in WHOLE.values():
        return {"linewidth": 1.3, "linestyle": "--"}
    return {"linewidth": 1.3, "linestyle": ":" if method.startswith("early") or method == SKETCH else "-"}
