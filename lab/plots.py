"""Plots as PNG bytes.

Responsible for matplotlib, which is imported when a plot is drawn and never opens a window, and for points of
means. Not responsible for what an experiment draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from lab.statistics import Summary
from lab.tables import Answers

MARKERS = "osD^v<>pPX*hH"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe and Ito, jfly.uni-koeln.de/color, 2008)."""


@dataclass(frozen=True)
class Picture:
    """A plot: the name of its file, its title, and the PNG."""

    name: str
    title: str
    data: bytes


def png(draw: Callable[[Any], None], size: tuple[float, float], dpi: int = 110) -> bytes:
    """What `draw` draws on a figure of this size in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    data = BytesIO()
    figure.savefig(data, format="png", dpi=dpi)
    return data.getvalue()


def band(axes: Any, across: Sequence[float], cells: Sequence[Summary], shade: float, **style: Any) -> None:
    """A line of means with their intervals."""
    (line,) = axes.plot(across, [cell.mean for cell in cells], markersize=4, **style)
    low, high = [cell.low for cell in cells], [cell.high for cell in cells]
    axes.fill_between(across, low, high, color=line.get_color(), alpha=shade)


def means(answers: Answers, key: str, x: str, y: str) -> list[tuple[float, float]]:
    """Means of two metrics, one point for each value of a field."""
    found = []
    for _, group in answers.groups(key):
        across, up = group.values(x), group.values(y)
        found.append((sum(across) / len(across), sum(up) / len(up)))
    return found
