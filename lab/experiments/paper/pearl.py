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
from lab.questions.items import WORD_PROBLEMS, Item
from lab.runs import grid, plans, run_once
from lab.statistics import proportion
from lab.tables import Answers, Cell, Column, Label, Table, rows

NAMES = (ANCHORS, PREFIX, DRAFT, aware(CLAIMED_THRESHOLD))
ENOUGH = 0.95
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
    labels: dict[str, Label] = {"order": "order", "condition": "condition"}

    def by_half(found: Answers) -> Cell:
        return proportion(sum(v <= about.total_steps / 2 for v in found.values("point")), len(found))

    columns: dict[str, Column] = {
        "N": len,
        "reached": lambda found: len(found.values("point")),
        "by half of the steps": by_half,
        "point, steps": "point",
    }
    points = rows(((each, _points(group)) for each, group in answers.by(labels)), columns)
    groups = answers.by(labels | {"steps": ("step", about.share)})
    curve = rows(groups, {"N": len, "F1": "f1", "right": "right"})
    note = (
        f"The first step from which on F1 stays at {ENOUGH:.0%} or more, over the items that reach it; by "
        "half of the steps with Wilson's interval (section 5 cites 97%). Replanned runs denoise everything "
        f"in so many steps, as the published phase C; the others are one plan of {about.total_steps} steps, "
        "stopped there."
    )
    return [
        Table.of("pearl", "C: the Pearl point on word problems", points, note),
        Table.of("pearl-curve", "C: F1 and right answers on word problems by step", curve),
    ]


EXPERIMENT = phase("pearl", "C: the Pearl point", measure, tables, wanted=wanted)
