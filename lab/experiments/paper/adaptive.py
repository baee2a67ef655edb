"""Phase `adaptive`: more diffusion steps for harder questions, fewer for easier ones (section 4.6).

Half of the items get more steps than the middle number and the other half fewer, so that the mean stays what
it is: by their difficulty, or by what the run shows after its first steps. The controls give every item the
middle number, give the steps in reverse, or at random; hindsight shows the most that could be gained. No run
is made for this: the predictions at each number of steps are those of the other phases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from lab.case import FRACTIONS, RunCase
from lab.conditions import ORDERS, PARALLEL, committed, draft
from lab.experiment import About, Records, phase
from lab.questions.items import LEVELS
from lab.statistics import summary
from lab.tables import Answers, Claim, Column, Figure, Row, Table, compare, less_than, more, rows

PLANS = (*ORDERS, PARALLEL)
GRADES: Mapping[str, tuple[float, float, float]] = {
    "10%": (0.05, 0.1, 0.15),
    "25%": (0.1, 0.25, 0.4),
}
"""Shares of the steps for the easier half, for everyone, and for the harder half; all of `FRACTIONS`."""

LEVEL, LENGTH, DOUBT = "difficulty", "predicted length", "doubt"
SIGNALS = (LEVEL, LENGTH, DOUBT)
MEASURES = {"right": "right", "F1": "f1", "anchors: F1": "anchors_f1"}


def doubt(chances: Sequence[float]) -> float:
    """Nats of a draft's own negative log-likelihood, from the probabilities of its tokens."""
    return -sum(math.log(max(chance, 1e-9)) for chance in chances)


def measure(case: RunCase) -> dict[str, Any]:
    answers, signals = [], []
    for name in PLANS:
        run = case.runs[name]
        first = run.at(case.lab.steps[0])
        signals.append(
            {
                "plan": name,
                LEVEL: case.item.level,
                LENGTH: first.predicted_length,
                DOUBT: round(doubt(first.confidence[: first.predicted_length]), 4),
            }
        )
        full = case.runs[name if name in ORDERS else "confidence"].answer
        for step in case.lab.steps:
            at = case.at(run.at(step), full)
            early = case.score(draft(at).ids, full)
            row = {"plan": name, "step": step, "right": early["right"], "f1": early["f1"]}
            answers.append(row | {"anchors_f1": case.score(case.fill(committed(at)).ids, full)["f1"]})
    return {"answers": answers, "signals": signals}


def halves(signals: Mapping[str, float]) -> tuple[set[str], set[str]]:
    """The items of the lower and of the upper half of a signal; of an odd number the middle one in neither.

    Equal values go by the items' order, which has nothing to do with them.
    """
    ranked = sorted(signals, key=lambda id_: signals[id_])
    half = len(ranked) // 2
    return set(ranked[:half]), set(ranked[len(ranked) - half :])


def allocated(
    by_step: Sequence[Answers], less: set[str], extra: set[str], ids: Sequence[str], metric: str
) -> Answers:
    """A metric of each item under its own number of steps, and those steps.

    by_step: the answers with few, with the middle number and with many steps.
    """
    tables_ = [{row["id"]: row for row in answers.rows} for answers in by_step]
    found = []
    for id_ in ids:
        row = tables_[0 if id_ in less else 2 if id_ in extra else 1][id_]
        found.append({"id": id_, metric: float(row[metric]), "step": row["step"]})
    return Answers(found)


def _by_lot(by_step: Sequence[Answers], ids: Sequence[str], metric: str) -> Answers:
    """The expected metric of each item if the steps are drawn at random."""
    few, _, many = ({row["id"]: row for row in answers.rows} for answers in by_step)
    return Answers(
        [
            {
                "id": id_,
                metric: (float(few[id_][metric]) + float(many[id_][metric])) / 2,
                "step": (few[id_]["step"] + many[id_]["step"]) / 2,
            }
            for id_ in ids
        ]
    )


def steps_of(about: About, grade: str) -> list[int]:
    """The three numbers of steps of a grade; empty where the plan is too short to tell them apart."""
    places = [FRACTIONS.index(share) for share in GRADES[grade]]
    if len(about.steps) < len(FRACTIONS):
        return []
    return [about.steps[place] for place in places]


class Allocation:
    """The answers of one plan at one grade, and ways to hand out its steps."""

    def __init__(self, records: Records, about: About, plan: str, grade: str) -> None:
        answers = Answers.of(records).where(plan=plan)
        self.by_step = [answers.where(step=step) for step in steps_of(about, grade)]
        self.signals = Answers.of(records, "signals").where(plan=plan)
        with_all = [{row["id"] for row in answers.rows} for answers in self.by_step]
        common = set.intersection(*with_all) if with_all else set()
        self.ids = [row["id"] for row in self.signals.rows if row["id"] in common]

    def known(self, signal: str) -> list[str]:
        """The items that have a signal."""
        have = {row["id"] for row in self.signals.rows if row[signal] is not None}
        return [id_ for id_ in self.ids if id_ in have]

    def same(self, ids: Sequence[str], metric: str) -> Answers:
        """Everyone with the middle number of steps."""
        return allocated(self.by_step, set(), set(), ids, metric)

    def by(self, signal: str, metric: str, *, turned: bool = False) -> Answers:
        """More steps for the higher signals; `turned`: for the lower ones."""
        ids = self.known(signal)
        values = {row["id"]: float(row[signal]) for row in self.signals.rows if row["id"] in set(ids)}
        low, high = halves({id_: values[id_] for id_ in ids})
        return allocated(self.by_step, high if turned else low, low if turned else high, ids, metric)

    def by_hindsight(self, metric: str) -> Answers:
        """More steps for those whom they help most."""
        few, _, many = ({row["id"]: float(row[metric]) for row in answers.rows} for answers in self.by_step)
        low, high = halves({id_: many[id_] - few[id_] for id_ in self.ids})
        return allocated(self.by_step, low, high, self.ids, metric)

    def by_lot(self, metric: str) -> Answers:
        return _by_lot(self.by_step, self.ids, metric)


def tables(records: Records, about: About) -> list[Table]:
    found: list[Row] = []
    for plan, grade in product(PLANS, GRADES):
        here = Allocation(records, about, plan, grade)
        if not here.ids:
            continue
        ways: dict[str, Callable[[str], Answers]] = {"the same for all": partial(here.same, here.ids)}
        ways |= {f"by {signal}": partial(here.by, signal) for signal in SIGNALS}
        ways |= {f"against {signal}": partial(here.by, signal, turned=True) for signal in SIGNALS}
        ways |= {"by lot": here.by_lot, "by hindsight": here.by_hindsight}
        for name, way in ways.items():
            if not len(some := way("right")):
                continue
            row: Row = {"plan": plan, "mean steps": grade, "handed out": name, "N": len(some)}
            row["steps"] = some.cell("step")
            row |= {column: way(metric).cell(metric) for column, metric in MEASURES.items()}
            row["right, less the same for all"] = less_than(here.same(here.ids, "right"), "right")(some)
            found.append(row)
    note = (
        "Half of the items get more steps and half fewer: 5, 10 and 15%, or 10, 25 and 40%. Predicted length "
        "and doubt (nats of the draft's own negative log-likelihood) are read after 5% of the steps. "
        "Hindsight gives more steps to those whom they help most, by each measure itself: no rule can do "
        f"better. Difficulty is the item's label ({', '.join(LEVELS)})."
    )
    return [
        _needed(records, about),
        Table.of("adaptive", "Steps by difficulty (section 4.6)", found, note),
    ]


def _needed(records: Records, about: About) -> Table:
    """Right answers and F1 by difficulty and steps."""

    def after(step: int, metric: str) -> Figure:
        return lambda group: group.where(step=step).cell(metric)

    columns: dict[str, Column] = {"N": lambda group: len({row["id"] for row in group.rows})}
    for step in about.steps:
        columns |= {f"right, {step}": after(step, "right"), f"F1, {step}": after(step, "f1")}
    groups = Answers.of(records).by({"plan": "plan", "difficulty": "difficulty"})
    ordered = sorted(groups, key=lambda g: (PLANS.index(str(g[0]["plan"])), str(g[0]["difficulty"])))
    note = "The draft after each number of steps; F1 is against the full run."
    return Table.of("adaptive-levels", "Drafts by difficulty and steps", rows(ordered, columns), note)


def claims(records: Records, about: About) -> list[Claim]:
    found = []
    for plan in PLANS:
        here = Allocation(records, about, plan, "25%")
        for signal in (LEVEL, DOUBT):
            ids = here.known(signal)
            if not ids:
                continue
            chosen, same = here.by(signal, "right"), here.same(ids, "right")
            sentence, result = compare(f"steps by {signal}", chosen, "the same steps for all", same, "right")
            every, best = here.same(here.ids, "right"), here.by_hindsight("right")
            most, _ = compare("by hindsight", best, "the same steps for all", every, "right")
            steps = [summary(answers.values("step")).mean for answers in (chosen, same)]
            found.append(
                Claim(
                    "More steps for harder questions do better than as many for all (section 4.6), "
                    f"by {signal}.",
                    more(result),
                    f"{sentence}.",
                    f"{steps[0]:.1f} steps against {steps[1]:.1f}. The most that there is to win: {most}.",
                    f"plan {plan}, {steps_of(about, '25%')[1]} of {about.total_steps} steps on average",
                )
            )
    return found


EXPERIMENT = phase("adaptive", "Steps by difficulty", measure, tables, claims)
