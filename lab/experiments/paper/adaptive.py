"""Phase `adaptive`: more diffusion steps for harder questions, fewer for easier ones (section 4.6).

Half of the items get more steps than the middle number and the other half fewer, so that the mean stays what
it is: by their difficulty, or by the draft's doubt after the first steps. The controls give every item the
middle number, or the steps in reverse; hindsight shows the most that could be gained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from lab.case import FRACTIONS, RunCase
from lab.conditions import ORDERS, PARALLEL
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import Answers, Row, Table

GRADES = {"10%": (0.05, 0.1, 0.15), "25%": (0.1, 0.25, 0.4)}
"""Shares of the steps for the easier half, for everyone, and for the harder half; all of `FRACTIONS`."""
SAME = "the same for all"


def measure(case: RunCase) -> Iterator[Record]:
    """By plan: difficulty and doubt, and whether the draft is right after each number of steps."""
    for name in (*ORDERS, PARALLEL):
        run = case.runs[name]
        drafts = [run.at(step) for step in case.lab.steps]
        sure = drafts[0].confidence[: drafts[0].predicted_length]
        doubt = -sum(math.log(max(chance, 1e-9)) for chance in sure)
        right = [case.score(draft.predicted_answer, run.answer)["right"] for draft in drafts]
        yield {"plan": name, "level": case.item.level, "doubt": doubt, "after": right}


def handed_out(answers: Answers, grade: list[int], hard: Callable[[Record], float] | None) -> Answers:
    """The answers with few, the middle number or many steps, many where `hard` is higher; None: the middle
    number for all.

    grade: the three places in `after`. Of an odd number the middle item gets the middle number; equal values
    go by the items' order.
    """
    ranked = sorted(range(len(answers)), key=lambda i: hard(answers.rows[i])) if hard else []
    half = len(ranked) // 2
    place = dict.fromkeys(ranked[:half], grade[0]) | dict.fromkeys(ranked[len(ranked) - half :], grade[2])
    at = [place.get(i, grade[1]) for i in range(len(answers))]
    rows = zip(answers.rows, at, strict=True)
    return Answers([row | {"right": row["after"][steps], "place": steps} for row, steps in rows])


def _gained(few: int, many: int, row: Record) -> float:
    return float(row["after"][many] - row["after"][few])


def tables(answers: Answers, about: About) -> Iterator[Table]:
    if len(about.steps) < len(FRACTIONS):  # a plan too short to tell its shares apart
        return
    found: list[Row] = []
    for (plan,), group in answers.groups("plan"):
        for name, shares in GRADES.items():
            grade = few, _, many = [FRACTIONS.index(share) for share in shares]
            ways: dict[str, Callable[[Record], float] | None] = {SAME: None}
            if len(group.values("level")) == len(group):
                ways |= {
                    "by difficulty": lambda row: row["level"],
                    "against difficulty": lambda row: -row["level"],
                }
            ways |= {"by doubt": lambda row: row["doubt"], "against doubt": lambda row: -row["doubt"]}
            ways["by hindsight"] = partial(_gained, few, many)
            same = handed_out(group, grade, None)
            for way, hard in ways.items():
                given = handed_out(group, grade, hard)
                steps = [about.steps[row["place"]] for row in given.rows]
                row: Row = {"plan": plan, "mean steps": name, "handed out": way, "N": len(given)}
                row |= {"steps": sum(steps) / len(steps), "right": given.cell("right")}
                found.append(row | {f"right less {SAME}": given.less(same, "right")})
    note = (
        "Half of the items get more steps and half fewer: 5, 10 and 15%, or 10, 25 and 40%. Doubt (nats of "
        "the draft's own negative log-likelihood) is read after 5% of the steps. Hindsight gives more steps "
        "to those whom they help most: no rule can do better. Difficulty is the item's label."
    )
    yield Table.of("adaptive", "Steps by difficulty (section 4.6)", found, note)


EXPERIMENT = phase("adaptive", "Steps by difficulty", measure, tables)
