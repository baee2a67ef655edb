"""Phase `fill` (B): forced decoding at every fraction, with every control (Table 2, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from lab.case import RunCase
from lab.conditions import (
    ALONE,
    ANCHORS,
    CLAIMED,
    COMPARED,
    DRAFT,
    FULL,
    ORDERS,
    PARALLEL,
    PARALLEL_CONDITIONS,
    PREFIX,
    PRODUCT,
)
from lab.experiment import About, phase
from lab.plots import Picture, png
from lab.statistics import proportion
from lab.store import Record
from lab.tables import MEASURES_NOTE, METRICS, Answers, Row, Table, metric_columns, rows

LAST = [*ORDERS][-1]
"""The order by confidence, which also has a run with parallel commits."""


def measure(case: RunCase) -> Iterator[Record]:
    for order in ORDERS:
        yield from (case.reference(order, name) for name in (FULL, ALONE))
        for step in case.lab.steps:
            yield from (case.answer(order, step, name) for name in COMPARED)
    for step in case.lab.steps:
        yield from (case.answer(PARALLEL, step, name) | {"order": LAST} for name in PARALLEL_CONDITIONS)


def at(answers: Answers, order: str, step: int, condition: str) -> Answers:
    """The rows of one condition. Conditions without anchors have the same rows at every step."""
    free = condition in (ALONE, FULL)
    return answers.where(order=order, condition=condition, **({} if free else {"step": step}))


def tables(answers: Answers, about: About) -> Iterator[Table]:
    yield _headline(answers, about)
    yield _kept(answers, about)
    for order in ORDERS:
        groups = answers.where(order=order).by({"steps": ("step", about.share), "condition": "condition"})
        by_step = sorted(groups, key=lambda each: each[1].rows[0]["step"])
        title = f"B: Table 2 and its controls, order of commits by {order}"
        yield Table.of(f"fill-{order}", title, rows(by_step, metric_columns()), MEASURES_NOTE)


def _headline(answers: Answers, about: About) -> Table:
    """Both orders side by side at the paper's first fraction."""
    found: list[Row] = []
    step = about.paper_steps[0]
    for name in (ALONE, *COMPARED, *PARALLEL_CONDITIONS, FULL):
        row: Row = {"condition": name}
        for order in ORDERS:
            if not len(group := at(answers, order, step, name)):
                continue
            row["N"] = len(group)
            row |= {
                f"{column}, {order}": group.cell(METRICS[column])
                for column in ("F1", "right", "bytes", "passes")
            }
            for metric in ("f1", "right"):
                less = group.less(at(answers, order, step, ANCHORS), metric)
                row[f"{metric.capitalize()} less the paper's anchors, {order}"] = less
        found.append(row)
    title = f"What an anchor buys: every condition after {about.share(step)} steps"
    return Table.of("headline", title, found, MEASURES_NOTE)


def _kept(answers: Answers, about: About) -> Table:
    """Share of the full run's right answers that a condition keeps, with Wilson intervals (section 4.2)."""
    found: list[Row] = []
    for order in ORDERS:
        right = {row["id"] for row in at(answers, order, 0, FULL).rows if row["right"]}
        for step in about.paper_steps:
            row: Row = {"order": order, "steps": about.share(step), "right in the full run": len(right)}
            for name in (ALONE, ANCHORS, PREFIX, DRAFT, CLAIMED):
                kept = [r["right"] for r in at(answers, order, step, name).rows if r["id"] in right]
                row[name] = proportion(int(sum(kept)), len(kept))
            found.append(row)
    note = "Cells: share ± deviation of one answer [95% Wilson interval]. The paper at 25%: 87 of 92, 0.946."
    return Table.of("kept", "B: right answers of the full run that are kept (section 4.2)", found, note)


def plots(answers: Answers, about: About) -> Iterator[Picture]:
    """Figure 2: agreement and right answers against diffusion steps."""
    shown = answers.where(order=LAST)

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        measures = (("f1", "agreement with the full run"), ("right", "right answers"))
        for axes, (metric, says) in zip(panels, measures, strict=True):
            for marker, name in zip("osD", (PRODUCT, ANCHORS, PREFIX), strict=True):
                groups = shown.where(condition=name).groups("step")
                points = [(step, fmean(group.values(metric))) for (step,), group in groups]
                axes.plot(*zip(*points, strict=True), marker=marker, label=name)
            for name in (ALONE, FULL):
                height = fmean(shown.where(condition=name).values(metric))
                axes.axhline(height, linestyle=":", color="black", linewidth=0.8)
                axes.annotate(name, (0.99, height), xycoords=("axes fraction", "data"), ha="right")
            axes.set(xlabel="diffusion steps", ylabel=says)
        panels[0].legend(fontsize=8)

    yield Picture("fill", f"Figure 2, order of commits by {LAST}, with its controls", png(draw, (10, 4)))


EXPERIMENT = phase("fill", "B: forced decoding with controls", measure, tables, plots=plots)
