"""Phase `budget`: the number of diffusion steps decided per query (sections 5 and 6).

Every stop rule observes the same runs, and the answer is the draft where the rule stops: every prediction of
that step; beside it the paper's anchors, filled. The control is a fixed number of steps for every query, at
the rule's own mean: between two numbers of the grid an item's value is interpolated. A run whose answer is
complete costs no more steps under either. The convergence table has a run of random order as well, in which
Prophet's figures were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cloud_anchor.sampling.config import ORIGIN, DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.stops import STOPS, complete
from lab.case import RunCase
from lab.conditions import ORDERS, PARALLEL, committed, default, draft, parallel_plan
from lab.conditions import plan as plan_of
from lab.experiment import About, Records, phase
from lab.runs import denoise_steps, grid
from lab.statistics import proportion
from lab.tables import Answers, Cell, Column, Label, Table, less_than, rows

RANDOM = "random"
"""The plan that commits in random order, Dream's default."""

PLANS = (*ORDERS, PARALLEL, RANDOM)
FIXED = "fixed"
RULES = {name: STOPS[name] for name in ("complete", "prophet", "plateau")}
SHOWN = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the steps in the table of convergence."""


@dataclass(frozen=True)
class Observed:
    """One run: what it predicted at some steps, and the step at which each rule stops it.

    seen: by step, the states asked for, those of the stops, and the last one, of the complete answer.
    stops: rule -> step, the last where the rule has not stopped it.
    """

    seen: Mapping[int, Denoised]
    stops: Mapping[str, int]

    @property
    def last(self) -> int:
        return max(self.seen)


def observe(
    model: MaskedModel, prompt: Sequence[int], config: DenoiseConfig, steps: Sequence[int]
) -> Observed:
    """One run of a prompt until its answer is complete, after which nothing of it changes."""
    seen: dict[int, Denoised] = {}
    stops: dict[str, int] = {}
    for state in denoise_steps(model, [prompt], config):
        step = state.steps[0]
        view = state.view(model, config)
        stopped = {name: step for name, rule in RULES.items() if name not in stops and bool(rule(view)[0])}
        stops |= stopped
        over = step == config.run_steps or bool(complete(view)[0])
        if stopped or step in steps or over:
            (seen[step],) = state.results(model, config)
        if over:
            break
    last = max(seen)
    return Observed(seen, {name: stops.get(name, last) for name in RULES})


def planned(name: str, base: DenoiseConfig) -> DenoiseConfig:
    """The plan of a name: an order's quota, parallel commits, or random order; all of the steps."""
    if name == PARALLEL:
        return parallel_plan(base, base.total_steps)
    if name == RANDOM:
        return replace(base, order=ORIGIN, commit="quota", temperature=0.0, top_p=None, top_k=None)
    return plan_of(name, base)


def measure(case: RunCase) -> dict[str, Any]:
    base = case.lab.base
    steps = sorted({*range(1, min(8, base.total_steps) + 1), *grid(base.total_steps)})
    found: list[dict[str, Any]] = []
    for name in PLANS:
        run = observe(case.lab.pipeline.masked_model, case.prompt_ids, planned(name, base), steps)
        stops = [(FIXED, step, min(step, run.last)) for step in steps]
        stops += [(rule, 0, stop) for rule, stop in run.stops.items()]
        scores = {stop: _scores(case, run, stop) for _, _, stop in stops}
        found += [
            {"plan": name, "budget": budget, "planned": wanted, "steps": stop, **scores[stop]}
            for budget, wanted, stop in stops
        ]
    return {"answers": found}


def _scores(case: RunCase, run: Observed, stop: int) -> dict[str, Any]:
    at = case.at(run.seen[stop], run.seen[run.last].answer)
    drafted = case.score(draft(at).ids, at.full)
    anchors = case.score(case.fill(committed(at)).ids, at.full)
    found: dict[str, Any] = {"right": drafted["right"], "f1": drafted["f1"]}
    return found | {"anchors_f1": anchors["f1"], "bytes": case.size(default(at))}


def fixed_at(fixed: Answers, mean: float) -> Answers:
    """Whether each item is right under a fixed number of steps whose mean cost is `mean`.

    fixed: the rows of the fixed budgets. Between two budgets an item's value is interpolated, and outside of
    the grid it is that of the nearest one.
    """
    grids = [group for _, group in fixed.groups("planned")]  # ascending, as they are measured
    costs = [sum(group.values("steps")) / len(group) for group in grids]
    right: dict[str, list[float]] = {}
    for group in grids:
        for row in group.rows:
            right.setdefault(row["id"], []).append(row["right"])
    return Answers([{"id": id_, "right": float(np.interp(mean, costs, of))} for id_, of in right.items()])


def early(fixed: Answers, step: int) -> Cell:
    """Of the items that are right at the end of a plan, the share whose draft is right from `step` on."""
    found = []
    for _, group in fixed.groups("id"):
        by_step = {row["planned"]: row["right"] for row in group.rows}
        if by_step[max(by_step)]:
            found.append(all(right for planned_steps, right in by_step.items() if planned_steps >= step))
    return proportion(sum(found), len(found))


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def gain(group: Answers) -> Cell:
        steps, plan = group.values("steps"), group.rows[0]["plan"]
        fixed = answers.where(plan=plan, budget=FIXED)
        return less_than(fixed_at(fixed, sum(steps) / len(steps)), "right")(group)

    def by_now(group: Answers) -> Cell:
        first = group.rows[0]
        return early(answers.where(plan=first["plan"], budget=FIXED), first["planned"])

    scores: dict[str, Column] = {"F1": "f1", "anchors: F1": "anchors_f1", "bytes": "bytes"}
    decided = Answers([row for row in answers.rows if row["budget"] != FIXED])
    costs: dict[str, Column] = {"N": len, "steps": "steps", "right": "right"}
    rules = rows(
        decided.by({"plan": "plan", "stops by": "budget"}),
        {**costs, "right less fixed steps of that mean": gain, **scores},
    )
    shown = {int(share * about.total_steps) for share in SHOWN}
    plans: dict[str, Label] = {"plan": "plan", "steps": ("planned", about.share)}
    fixed = rows(
        (each for each in answers.where(budget=FIXED).by(plans) if each[1].rows[0]["planned"] in shown),
        {
            "N": len,
            "steps until complete": "steps",
            "right": "right",
            "right by now, of those right in the end": by_now,
            **scores,
        },
    )
    note = (
        "Right and F1 are of the draft: every prediction where the rule stops; F1 is against the same plan's "
        "last step. Anchors: the committed tokens, filled by the edge model. Bytes: the default selection. "
        "Prophet's gaps are the published ones. The control gives every query the same number of steps, as "
        "many as the rule takes on average, and stops at a complete answer too."
    )
    convergence = (
        "The first share is of all items. The last counts an item from the step on from which every draft "
        "that was seen is right (Wilson). Prophet, as section 5 cites it: 97% of GSM8K at half of the steps; "
        "it measured this with random order."
    )
    return [
        Table.of("budget", "Steps decided per query (section 6)", rules, note),
        Table.of("convergence", "Right answers by step (Prophet, section 5)", fixed, convergence),
    ]


EXPERIMENT = phase("budget", "Steps per query", measure, tables, limit=40)
