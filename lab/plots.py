"""Plots as PNG bytes.

Responsible for matplotlib, which is imported when a plot is drawn and never opens a window. Not responsible
for what an experiment draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any


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
