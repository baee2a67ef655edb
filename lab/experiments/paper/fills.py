"""Phase `fill` (B): forced decoding at every fraction, with every control (Table 2, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from lab.case import RunCase
from lab.conditions import (
    ALONE,
    ANCHORS,
    CLAIMED_THRESHOLD,
    CONDITIONS,
    DRAFT,
    FULL,
    ORDERS,
    PARALLEL,
    PARALLEL_CONDITIONS,
    PREFIX,
    PRODUCT,
    aware,
)
from lab.experiment import About, Records, phase
from lab.plots import Picture, png
from lab.statistics import proportion
from lab.tables import MEASURES_NOTE, METRICS, Answers, Row, Table, less_than, metric_columns, rows

LAST = [*ORDERS][-1]
"""The order by confidence, which also has a run with parallel commits."""


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        found += case.reference(order)
        for step in case.lab.steps:
            found += [case.answer(order, step, name, how) for name, how in CONDITIONS.items()]
    for step in case.lab.steps:
        for name, how in PARALLEL_CONDITIONS.items():
            found.append(case.answer(PARALLEL, step, name, how) | {"order": LAST})
    return {"answers": found}


def at(answers: Answers, order: str, step: int, condition: str) -> Answers:
    """The rows of one condition. Conditions without anchors have the same rows at every step."""
    free = condition in (ALONE, FULL)
    return answers.where(order=order, condition=condition, **({} if free else {"step": step}))


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    found = [_conditions(answers.where(order=order), order, about) for order in ORDERS]
    return [_headline(answers, about), _kept(answers, about), *found]


def _headline(answers: Answers, about: About) -> Table:
    """Both orders side by side at the paper's first fraction."""
    found: list[Row] = []
    step = about.paper_steps[0]
    for name in (ALONE, *CONDITIONS, *PARALLEL_CONDITIONS, FULL):
        row: Row = {"condition": name}
        for order in ORDERS:
            group = at(answers, order, step, name)
            if not group:
                continue
            row["N"] = len(group)
            for column in ("F1", "right", "bytes", "passes"):
                row[f"{column}, {order}"] = group.cell(METRICS[column])
            for metric in ("f1", "right"):
                anchors = less_than(at(answers, order, step, ANCHORS), metric)
                row[f"{metric.capitalize()} less the paper's anchors, {order}"] = anchors(group)
        found.append(row)
    title = f"What an anchor buys: every condition after {about.share(step)} steps"
    return Table.of("headline", title, found, MEASURES_NOTE)


def _conditions(answers: Answers, order: str, about: About) -> Table:
    groups = answers.by({"steps": ("step", about.share), "condition": "condition"})
    by_step = sorted(groups, key=lambda each: each[1].rows[0]["step"])
    title = f"B: Table 2 and its controls, order of commits by {order}"
    columns = ("steps", "condition", "N", *METRICS)
    return Table(f"fill-{order}", title, columns, rows(by_step, metric_columns()), MEASURES_NOTE)


def _kept(answers: Answers, about: About) -> Table:
    """Share of the full run's right answers that a condition keeps, with Wilson intervals (section 4.2)."""
    found: list[Row] = []
    for order in ORDERS:
        right = {row["id"] for row in at(answers, order, 0, FULL).rows if row["right"]}
        for step in about.paper_steps:
            row: Row = {"order": order, "steps": about.share(step), "right in the full run": len(right)}
            for name in (ALONE, ANCHORS, PREFIX, DRAFT, aware(CLAIMED_THRESHOLD)):
                kept = [r for r in at(answers, order, step, name).rows if r["id"] in right]
                row[name] = proportion(sum(bool(r["right"]) for r in kept), len(kept))
            found.append(row)
    note = "Cells: share ± deviation of one answer [95% Wilson interval]. The paper at 25%: 87 of 92, 0.946."
    return Table.of("kept", "B: right answers of the full run that are kept (section 4.2)", found, note)


def plots(records: Records, about: About) -> Iterator[Picture]:
    answers = Answers.of(records).where(order=LAST)
    yield Picture("fill", f"Figure 2, order of commits by {LAST}, with its controls", _frontier(answers))


def _frontier(answers: Answers) -> bytes:
    """Agreement and right answers against diffusion steps."""

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        measures = (("f1", "agreement with the full run"), ("right", "right answers"))
        for axes, (metric, says) in zip(panels, measures, strict=True):
            for index, name in enumerate((PRODUCT, ANCHORS, PREFIX)):
                groups = answers.where(condition=name).groups("step")
                points = [(step, fmean(group.values(metric))) for (step,), group in groups]
                axes.plot(*zip(*points, strict=True), marker="osD"[index], label=name)
            for name in (ALONE, FULL):
                height = fmean(answers.where(condition=name).values(metric))
                axes.axhline(height, linestyle=":", color="black", linewidth=0.8)
                axes.annotate(name, (0.99, height), xycoords=("axes fraction", "data"), ha="right")
            axes.set(xlabel="diffusion steps", ylabel=says)
        panels[0].legend(fontsize=8)

    return png(draw, (10, 4))


EXPERIMENT = phase("fill", "B: forced decoding with controls", measure, tables, plots=plots)
