"""Phase `pearl` (C): the fewest diffusion steps after which the edge's answer equals the full run's.

On word problems, and on a finer grid of steps: an item's Pearl point is the first step from which on F1 stays
at 95% or more. Beside the prefix of one plan: whole runs with a plan of n steps, as the published experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab.case import RunCase
from lab.conditions import ANCHORS, CLAIMED, DRAFT, ORDERS, PREFIX, plan
from lab.experiment import About, phase
from lab.questions.items import WORD_PROBLEMS
from lab.runs import grid, plans, run_once
from lab.statistics import proportion
from lab.store import Record
from lab.tables import Answers, Column, Label, Table, rows

ENOUGH = 0.95
REPLANNED = "replanned: a full run of so many steps"


def measure(case: RunCase) -> Iterator[Record]:
    lab = case.lab
    for order in ORDERS:
        for step in grid(lab.base.total_steps):
            yield from (case.answer(order, step, name) for name in (ANCHORS, PREFIX, DRAFT, CLAIMED))
        full = case.runs[order]
        for count in plans(lab.base.total_steps):
            run = full
            if count < lab.base.total_steps:
                config = replace(plan(order, lab.base), total_steps=count)
                (run,) = run_once(lab.pipeline.masked_model, [case.prompt_ids], config, [count])
            row = {"order": order, "step": count, "condition": REPLANNED}
            yield row | case.judged(run.answer, full.answer)


def point(steps: Sequence[float], scores: Sequence[float]) -> float | None:
    """The first step from which on every score is at least `ENOUGH`; None where the last is below."""
    found = None
    for step, score in sorted(zip(steps, scores, strict=True), reverse=True):
        if score < ENOUGH:
            break
        found = step
    return found


def _points(answers: Answers) -> Answers:
    """One row per item with its `point`, None where it has none."""
    points = {
        item: point(group.values("step"), group.values("f1")) for (item,), group in answers.groups("id")
    }
    return Answers([{"id": item, "point": found} for item, found in points.items()])


def tables(answers: Answers, about: About) -> Iterator[Table]:
    columns: dict[str, Column] = {
        "N": len,
        "reached": lambda found: len(found.values("point")),
        "by half of the steps": lambda found: proportion(
            sum(step <= about.total_steps / 2 for step in found.values("point")), len(found)
        ),
        "point, steps": "point",
    }
    note = (
        f"The first step from which on F1 stays at {ENOUGH:.0%} or more, over the items that reach it; by "
        "half of the steps with Wilson's interval (section 5 cites 97%). Replanned runs denoise everything "
        f"in so many steps, as the published phase C; the others are one plan of {about.total_steps} steps, "
        "stopped there."
    )
    labels: dict[str, Label] = {"order": "order", "condition": "condition"}
    points = rows(((each, _points(group)) for each, group in answers.by(labels)), columns)
    yield Table.of("pearl", "C: the Pearl point on word problems", points, note)
    title = "C: F1 and right answers on word problems by step"
    by_step = labels | {"steps": ("step", about.share)}
    yield answers.table("pearl-curve", title, by_step, {"N": len, "F1": "f1", "right": "right"})


EXPERIMENT = phase(
    "pearl", "C: the Pearl point", measure, tables, wanted=lambda item: item.benchmark in WORD_PROBLEMS
)
