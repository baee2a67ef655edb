"""Phase `budget`: the number of diffusion steps decided per query (sections 5 and 6).

Every stop rule observes the same runs, and the answer is the draft where the rule stops: every prediction of
that step; beside it the paper's anchors, filled. The control is a fixed number of steps for every query, at
the rule's own mean: between two numbers of the grid an item's value is interpolated. A run whose answer is
complete costs no more steps under either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.stops import STOPS
from lab.case import RunCase
from lab.conditions import ORDERS, PARALLEL, committed, default, draft, plan
from lab.experiment import About, phase
from lab.runs import denoise_steps, grid
from lab.store import Record
from lab.tables import Answers, Cell, Column, Table

FIXED = "fixed"
RULES = ("complete", "prophet", "plateau")


def observe(
    model: MaskedModel, prompt: Sequence[int], config: DenoiseConfig, steps: Sequence[int]
) -> tuple[dict[int, Denoised], dict[str, int]]:
    """A run until its answer is complete, as it was after `steps`, at the stops and at the end; and the step
    at which each rule stops it, the last where it does not.
    """
    seen: dict[int, Denoised] = {}
    stops: dict[str, int] = {}
    for state in denoise_steps(model, [prompt], config):
        step, view = state.steps[0], state.view()
        stopped = {name: step for name in RULES if name not in stops and bool(STOPS[name](view)[0])}
        stops |= stopped
        over = "complete" in stops or step == config.run_steps
        if stopped or over or step in steps:
            (seen[step],) = state.results()
        if over:
            break
    return seen, {name: stops.get(name, max(seen)) for name in RULES}


def measure(case: RunCase) -> Iterator[Record]:
    base = case.lab.base
    steps = sorted({*range(1, min(8, base.total_steps) + 1), *grid(base.total_steps)})
    for name in (*ORDERS, PARALLEL):
        seen, stops = observe(case.lab.pipeline.masked_model, case.prompt_ids, plan(name, base), steps)
        last = max(seen)
        for budget, planned in [(FIXED, step) for step in steps] + list(stops.items()):
            at = case.at(seen[min(planned, last)], seen[last].answer)
            row = {"plan": name, "budget": budget, "planned": planned, "steps": at.early.steps}
            row |= case.judged(draft(at).ids, at.full)
            if budget != FIXED:
                filled = case.fill(committed(at)).ids
                row |= {"anchors_f1": case.judged(filled, at.full)["f1"], "bytes": case.size(default(at))}
            yield row


def fixed_at(fixed: Answers, mean: float) -> Answers:
    """Whether each item is right under a fixed number of steps whose mean cost is `mean`.

    fixed: the rows of the fixed budgets. Between two budgets an item's value is interpolated, and outside of
    the grid it is that of the nearest one.
    """
    grids = pd.DataFrame(fixed.rows).pivot(index="id", columns="planned", values=["steps", "right"])
    costs = grids["steps"].mean()
    right = {id_: float(np.interp(mean, costs, of)) for id_, of in grids["right"].iterrows()}
    return Answers([{"id": id_, "right": value} for id_, value in right.items()])


def tables(answers: Answers, about: About) -> Iterator[Table]:
    def gain(group: Answers) -> Cell:
        steps = group.values("steps")
        fixed = answers.where(plan=group.rows[0]["plan"], budget=FIXED)
        return group.less(fixed_at(fixed, sum(steps) / len(steps)), "right")

    columns: dict[str, Column] = {
        "N": len,
        "steps": "steps",
        "right": "right",
        "right less fixed steps of that mean": gain,
        "F1": "f1",
        "anchors: F1": "anchors_f1",
        "bytes": "bytes",
    }
    note = (
        "Right and F1 are of the draft: every prediction where the rule stops; F1 is against the same plan's "
        "last step. Anchors: the committed tokens, filled by the edge model. Bytes: the default selection. "
        "Prophet's gaps are the published ones. The control gives every query the same number of steps, as "
        "many as the rule takes on average, and stops at a complete answer too."
    )
    decided = Answers([row for row in answers.rows if row["budget"] != FIXED])
    labels = {"plan": "plan", "stops by": "budget"}
    yield decided.table("budget", "Steps decided per query (section 6)", labels, columns, note)


EXPERIMENT = phase("budget", "Steps per query", measure, tables, limit=40)
