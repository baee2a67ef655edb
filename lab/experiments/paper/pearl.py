"""Phase `pearl` (C): the fewest diffusion steps after which the edge's answer equals the full run's.

On word problems, and on a finer grid of steps: an item's Pearl point is the first step from which on F1 stays
at 95% or more. Beside the prefix of one plan: whole runs with a plan of n steps, as the published experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lab.case import Case
from lab.conditions import ANCHORS, CLAIMED_THRESHOLD, CONDITIONS, DRAFT, ORDERS, PREFIX, aware, plan
from lab.experiments.phase import About, Phase, Records
from lab.questions.items import WORD_PROBLEMS, Item
from lab.runs import run_once
from lab.statistics import proportion
from lab.tables import Answers, Claim, Row, Table, verdict

NAMES = (ANCHORS, PREFIX, DRAFT, aware(CLAIMED_THRESHOLD))
ENOUGH = 0.95
CITED = 0.97
"""The share that section 5 cites."""

SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)


PLANS = (8, 13, 16, 24, 32, 48, 64, 96, 128)
"""Steps of the replanned runs of the published experiment, out of 128."""

REPLANNED = "replanned: a full run of so many steps"


def plans(total_steps: int) -> list[int]:
    """The published numbers of steps, of another plan as many shares of it."""
    return sorted({max(1, round(count * total_steps / PLANS[-1])) for count in PLANS})


def grid(total_steps: int) -> list[int]:
    """The steps at which one plan is stopped: shares of it, and the numbers of steps that are replanned."""
    return sorted({max(1, int(share * total_steps + 1e-9)) for share in SHARES} | {*plans(total_steps)})


def wanted(item: Item) -> bool:
    return item.benchmark in WORD_PROBLEMS


def measure(case: Case) -> dict[str, Any]:
    rows = []
    for order in ORDERS:
        for step in grid(case.lab.base.total_steps):
            for name in NAMES:
                row = case.answer(order, step, name, CONDITIONS[name])
                rows.append({key: row[key] for key in ("order", "step", "condition", "f1", "right")})
        rows += _replanned(case, order)
    return {"answers": rows}


def _replanned(case: Case, order: str) -> Iterator[dict[str, Any]]:
    """Answers of whole runs of fewer steps, each with a plan of its own, against the full run (phase C)."""
    lab, reference = case.lab, case.runs[order].answer
    for count in plans(lab.base.total_steps):
        run = case.runs[order]
        if count < lab.base.total_steps:
            config = replace(plan(order, lab.base), total_steps=count)
            (run,) = run_once(lab.pipeline.model, [case.prompt_ids], config, [count])
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
    rows = []
    for (item,), group in answers.groups("id"):
        steps = [int(row["step"]) for row in group.rows]
        rows.append({"id": item, "point": point(steps, group.values("f1"))})
    return Answers(rows)


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    curve: list[Row] = []
    for (order, step), group in sorted(answers.groups("order", "step"), key=lambda found: found[0]):
        row: Row = {"order": order, "steps": about.share(step)}
        row["N"] = max(len(here) for _, here in group.groups("condition"))
        for name in (*NAMES, REPLANNED):
            row[name] = group.where(condition=name).cell("f1")
            row[f"right: {name}"] = group.where(condition=name).cell("right")
        curve.append(row)
    points: list[Row] = []
    for (order, name), group in answers.groups("order", "condition"):
        found = _points(group)
        reached = found.values("point")
        points.append(
            {
                "order": order,
                "condition": name,
                "N": len(found),
                "reached": len(reached),
                "point, steps": found.cell("point"),
            }
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


PHASE = Phase("pearl", "C: the Pearl point", measure, tables, claims, wanted=wanted)
