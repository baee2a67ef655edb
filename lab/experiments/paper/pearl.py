"""Phase `pearl` (C): the fewest diffusion steps after which the edge's answer equals the full run's.

On word problems, and on a finer grid of steps: an item's Pearl point is the first step from which on F1 stays
at 95% or more. Beside the prefix of one plan: whole runs with a plan of n steps, as the published experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lab.case import RunCase
from lab.conditions import ANCHORS, CLAIMED_THRESHOLD, CONDITIONS, DRAFT, ORDERS, PREFIX, aware, plan
from lab.experiment import About, Records, phase
from lab.plots import Picture, means, png
from lab.questions.items import WORD_PROBLEMS, Item
from lab.runs import grid, plans, run_once
from lab.statistics import proportion
from lab.tables import Answers, Claim, Column, Figure, Table, rows, verdict

NAMES = (ANCHORS, PREFIX, DRAFT, aware(CLAIMED_THRESHOLD))
ENOUGH = 0.95
CITED = 0.97
"""The share that section 5 cites."""

REPLANNED = "replanned: a full run of so many steps"


def wanted(item: Item) -> bool:
    return item.benchmark in WORD_PROBLEMS


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        for step in grid(case.lab.base.total_steps):
            for name in NAMES:
                row = case.answer(order, step, name, CONDITIONS[name])
                found.append({key: row[key] for key in ("order", "step", "condition", "f1", "right")})
        found += _replanned(case, order)
    return {"answers": found}


def _replanned(case: RunCase, order: str) -> Iterator[dict[str, Any]]:
    """Answers of whole runs of fewer steps, each with a plan of its own, against the full run (phase C)."""
    lab, reference = case.lab, case.runs[order].answer
    for count in plans(lab.base.total_steps):
        run = case.runs[order]
        if count < lab.base.total_steps:
            config = replace(plan(order, lab.base), total_steps=count)
            (run,) = run_once(lab.pipeline.masked_model, [case.prompt_ids], config, [count])
        score = case.score(run.answer, reference)
        yield {"order": order, "step": count, "condition": REPLANNED} | {k: score[k] for k in ("f1", "right")}


def point(steps: Sequence[int], scores: Sequence[float], enough: float = ENOUGH) -> int | None:
    """The first step from which on every score is at least `enough`; None where the last is below."""
    found = None
    for step, score in sorted(zip(steps, scores, strict=True), reverse=True):
        if score < enough:
            break
        found = step
    return found


def _points(answers: Answers) -> Answers:
    """One row per item with its `point`, None where it has none."""
    return Answers(
        [
            {"id": item, "point": point([int(row["step"]) for row in group.rows], group.values("f1"))}
            for (item,), group in answers.groups("id")
        ]
    )


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def of(name: str, metric: str) -> Figure:
        return lambda group: group.where(condition=name).cell(metric)

    columns: dict[str, Column] = {"N": lambda group: max(len(here) for _, here in group.groups("condition"))}
    for name in (*NAMES, REPLANNED):
        columns |= {name: of(name, "f1"), f"right: {name}": of(name, "right")}
    by_step = sorted(
        answers.by({"order": "order", "steps": ("step", about.share)}),
        key=lambda each: [each[1].rows[0][key] for key in ("order", "step")],
    )
    curve = rows(by_step, columns)
    points = rows(
        (
            (labels, _points(group))
            for labels, group in answers.by({"order": "order", "condition": "condition"})
        ),
        {"N": len, "reached": lambda found: len(found.values("point")), "point, steps": "point"},
    )
    note = (
        f"The first step from which on F1 stays at {ENOUGH:.0%} or more, over the items that reach it. "
        "Replanned runs denoise everything in so many steps, as the published phase C; the others are one "
        f"plan of {about.total_steps} steps, stopped there."
    )
    return [
        Table.of("pearl", "C: the Pearl point on word problems", points, note),
        Table.of("pearl-curve", "C: F1 and right answers on word problems by step", curve),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    found = []
    answers = Answers.of(records)
    for order in ORDERS:
        reached = {name: _points(answers.where(order=order, condition=name)) for name in NAMES}
        middle = about.total_steps / 2
        values = reached[ANCHORS].values("point")
        early = sum(value <= middle for value in values)
        total = len(reached[ANCHORS])
        cell = proportion(early, total)
        others = "; ".join(
            f"{name}: {sum(v <= middle for v in points.values('point'))} of {len(points)}"
            for name, points in reached.items()
            if name != ANCHORS
        )
        found.append(
            Claim(
                "97% of the word problems need at most half of the steps (section 5 cites it).",
                verdict(bool(cell and cell.low >= CITED), bool(cell and cell.high < CITED), total),
                f"With anchors {early} of {total} stay at {ENOUGH:.0%} F1 from half of the steps on"
                + (f": {cell.mean:.1%} [{cell.low:.1%}, {cell.high:.1%}] (Wilson)." if cell else "."),
                f"The controls: {others}.",
                about.where(order),
            )
        )
    return found


def plots(records: Records, about: About) -> Iterator[Picture]:
    yield Picture("pearl", "Word problems: F1 by step", _pearl(Answers.of(records)))


def _pearl(answers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        for axes, order in zip(figure.subplots(1, len(ORDERS), sharey=True), ORDERS, strict=True):
            for (name,), group in answers.where(order=order).groups("condition"):
                xs, ys = zip(*means(group, "step", "step", "f1"), strict=True)
                axes.plot(xs, ys, marker="o", markersize=3, label=name)
            axes.axhline(0.95, linestyle=":", color="black", linewidth=0.8)
            axes.set(xlabel="diffusion steps", ylabel="F1", title=f"order by {order}")
        axes.legend(fontsize=8)

    return png(draw, (10, 4))


EXPERIMENT = phase("pearl", "C: the Pearl point", measure, tables, claims, wanted=wanted, plots=plots)
