"""Phase `adaptive`: more diffusion steps for harder questions, fewer for easier ones (section 4.6).

Half of the items get more steps than the middle number and the other half fewer, so that the mean stays what
it is: by their difficulty, or by the draft's doubt after the first steps. The controls give every item the
middle number, give the steps in reverse, or at random; hindsight shows the most that could be gained. No run
is made for this: the predictions at each number of steps are those of the other phases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from lab.case import FRACTIONS, RunCase
from lab.conditions import ORDERS, PARALLEL, draft
from lab.experiment import About, Records, phase
from lab.tables import Answers, Row, Table, less_than

PLANS = (*ORDERS, PARALLEL)
GRADES = {"10%": (0.05, 0.1, 0.15), "25%": (0.1, 0.25, 0.4)}
"""Shares of the steps for the easier half, for everyone, and for the harder half; all of `FRACTIONS`."""

SAME, LOT = "the same for all", "by lot"


def measure(case: RunCase) -> dict[str, Any]:
    """By plan: difficulty and doubt, and whether the draft is right after each number of steps."""
    answers = []
    for name in PLANS:
        run = case.runs[name]
        first = run.at(case.lab.steps[0])
        doubt = -sum(math.log(max(chance, 1e-9)) for chance in first.confidence[: first.predicted_length])
        drafts = (draft(case.at(run.at(step), run.answer)).ids for step in case.lab.steps)
        right = [case.score(ids, run.answer)["right"] for ids in drafts]
        answers.append({"plan": name, "level": case.item.level, "doubt": doubt, "after": right})
    return {"answers": answers}


def handed_out(rows: Sequence[Mapping[str, Any]], values: Sequence[float], grade: Sequence[int]) -> Answers:
    """Whether each item is right with few, the middle number or many steps; many for the higher values.

    grade: the three places in `after`. Of an odd number the middle item gets the middle number; equal values
    go by the items' order, which has nothing to do with them.
    """
    ranked = sorted(range(len(rows)), key=lambda i: values[i])
    half = len(ranked) // 2
    place = dict.fromkeys(ranked, grade[1])
    place |= dict.fromkeys(ranked[:half], grade[0]) | dict.fromkeys(ranked[len(ranked) - half :], grade[2])
    return Answers(
        [{**row, "right": row["after"][place[i]], "place": place[i]} for i, row in enumerate(rows)]
    )


def tables(records: Records, about: About) -> list[Table]:
    found: list[Row] = []
    if len(about.steps) < len(FRACTIONS):  # a plan too short to tell its shares apart
        return []
    for plan, (name, shares) in product(PLANS, GRADES.items()):
        grade = few, middle, many = [FRACTIONS.index(share) for share in shares]
        rows = Answers.of(records).where(plan=plan).rows
        after = [row["after"] for row in rows]
        ways = {SAME: Answers([row | {"right": row["after"][middle], "place": middle} for row in rows])}
        for signal, says in (("level", "difficulty"), ("doubt", "doubt")):
            if rows and all(row[signal] is not None for row in rows):
                values = [float(row[signal]) for row in rows]
                ways[f"by {says}"] = handed_out(rows, values, grade)
                ways[f"against {says}"] = handed_out(rows, [-value for value in values], grade)
        lot = [row | {"right": (row["after"][few] + row["after"][many]) / 2} for row in rows]
        ways[LOT] = Answers(lot)
        ways["by hindsight"] = handed_out(rows, [of[many] - of[few] for of in after], grade)
        for way, answers in ways.items():
            steps = [about.steps[row["place"]] for row in answers.rows if "place" in row]
            row: Row = {"plan": plan, "mean steps": name, "handed out": way, "N": len(answers)}
            row["steps"] = sum(steps) / len(steps) if steps else None
            row["right"] = answers.cell("right")
            row["right less the same for all"] = less_than(ways[SAME], "right")(answers)
            found.append(row)
    note = (
        "Half of the items get more steps and half fewer: 5, 10 and 15%, or 10, 25 and 40%. Doubt (nats of "
        "the draft's own negative log-likelihood) is read after 5% of the steps. Hindsight gives more steps "
        "to those whom they help most: no rule can do better. Difficulty is the item's label."
    )
    return [Table.of("adaptive", "Steps by difficulty (section 4.6)", found if records else [], note)]


EXPERIMENT = phase("adaptive", "Steps by difficulty", measure, tables)
