"""Phase `budget`: the number of diffusion steps decided per query (sections 5 and 6).

Every stop rule observes the same runs, and the answer is the draft where the rule stops: every prediction of
that step; beside it the paper's anchors, filled. The control is a fixed number of steps for every query, at
the rule's own mean: between two numbers of the grid an item's value is interpolated. A run whose answer is
complete costs no more steps under either. The convergence table has a run of random order as well, in which
Prophet's figures were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cloud_anchor.sampling.config import ORIGIN, DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.stops import STOPS, Stop, complete, entropy_sum, prophet
from lab.canvases import denoise_steps
from lab.case import RunCase
from lab.conditions import ORDERS, PARALLEL, Situation, committed, default, draft, parallel_plan
from lab.conditions import plan as plan_of
from lab.experiment import About, Records, phase
from lab.plots import MARKERS, Picture, means, png
from lab.runs import grid
from lab.statistics import Difference, difference, proportion
from lab.tables import (
    EQUAL,
    MIN_ITEMS,
    Answers,
    Cell,
    Claim,
    Column,
    Label,
    Table,
    more,
    rows,
    spread,
    verdict,
)

RANDOM = "random"
"""The plan that commits in random order, Dream's default."""

PLANS = (*ORDERS, PARALLEL, RANDOM)
FIXED = "fixed"
COMPLETE, PROPHET, PLATEAU, ENTROPY = "complete", "prophet", "plateau", "entropy"
CLAIMED = (PROPHET, PLATEAU, ENTROPY)
"""The rules of statements, with their defaults: fixed before the measurements."""

RULES: Mapping[str, Stop] = {
    **STOPS,
    "prophet, gaps x 0.5": partial(prophet, scale=0.5),
    "prophet, gaps x 2": partial(prophet, scale=2.0),
    "entropy, 0.1 nats": partial(entropy_sum, bound=0.1),
    "entropy, 5 nats": partial(entropy_sum, bound=5.0),
}
EACH = 8
"""Steps up to which every number is a fixed budget."""

SHOWN = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the steps in the table of convergence."""

CITED = 0.97
"""The share of Prophet's instances that are right by half of the steps (section 5)."""


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

    def at(self, step: int) -> Denoised:
        """The run after this many steps, or with its complete answer where it had that before."""
        return self.seen[min(step, self.last)]


def observe(
    model: MaskedModel,
    prompt: Sequence[int],
    config: DenoiseConfig,
    steps: Sequence[int],
    rules: Mapping[str, Stop] = RULES,
) -> Observed:
    """One run of a prompt until its answer is complete, after which nothing of it changes."""
    seen: dict[int, Denoised] = {}
    stops: dict[str, int] = {}
    for state in denoise_steps(model, [prompt], config):
        step = state.steps[0]
        view = state.view(model, config)
        stopped = {name: step for name, rule in rules.items() if name not in stops and bool(rule(view)[0])}
        stops |= stopped
        over = step == config.run_steps or bool(complete(view)[0])
        if stopped or step in steps or over:
            (seen[step],) = state.results(model, config)
        if over:
            break
    last = max(seen)
    return Observed(seen, {name: stops.get(name, last) for name in rules})


def planned(name: str, base: DenoiseConfig) -> DenoiseConfig:
    """The plan of a name: an order's quota, parallel commits, or random order; all of the steps."""
    if name == PARALLEL:
        return parallel_plan(base, base.total_steps)
    if name == RANDOM:
        return replace(base, order=ORIGIN, commit="quota", temperature=0.0, top_p=None, top_k=None)
    return plan_of(name, base)


def budgets(total_steps: int) -> list[int]:
    """The fixed numbers of steps, every one of the first: parallel commits need only a few."""
    return sorted({*range(1, min(EACH, total_steps) + 1), *grid(total_steps)})


def measure(case: RunCase) -> dict[str, Any]:
    base = case.lab.base
    steps = budgets(base.total_steps)
    found: list[dict[str, Any]] = []
    for name in PLANS:
        run = observe(case.lab.pipeline.masked_model, case.prompt_ids, planned(name, base), steps)
        full = run.at(base.total_steps).answer
        stops = [(FIXED, step, min(step, run.last)) for step in steps]
        if name != RANDOM:
            stops += [(rule, 0, stop) for rule, stop in run.stops.items()]
        scores: dict[int, dict[str, Any]] = {}
        for budget, wanted, stop in stops:
            if stop not in scores:
                at = case.at(run.at(stop), full)
                scores[stop] = _scores(case, at, filled=name != RANDOM)
            found.append({"plan": name, "budget": budget, "planned": wanted, "steps": stop, **scores[stop]})
    return {"answers": found}


def _scores(case: RunCase, at: Situation, *, filled: bool) -> dict[str, Any]:
    drafted = case.score(draft(at).ids, at.full)
    found: dict[str, Any] = {"right": drafted["right"], "f1": drafted["f1"]}
    if filled:
        anchors = case.score(case.fill(committed(at)).ids, at.full)
        found |= {"anchors_right": anchors["right"], "anchors_f1": anchors["f1"]}
        found["bytes"] = case.size(default(at))
    return found


def fixed_at(fixed: Answers, mean: float, metric: str) -> Answers:
    """The metric of each item under a fixed number of steps whose mean cost is `mean`.

    fixed: the rows of the fixed budgets. Between two budgets an item's value is interpolated, and outside of
    the grid it is that of the nearest one.
    """
    grid_ = sorted(
        (sum(group.values("steps")) / len(group), planned_steps)
        for (planned_steps,), group in fixed.groups("planned")
    )
    if not grid_:
        return fixed
    below = max((point for point in grid_ if point[0] <= mean), default=grid_[0])
    above = min((point for point in grid_ if point[0] >= mean), default=grid_[-1])
    share = (mean - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
    low, high = (
        {row["id"]: float(row[metric]) for row in fixed.where(planned=step).rows}
        for step in (below[1], above[1])
    )
    return Answers(
        [{"id": id_, metric: (1 - share) * low[id_] + share * high[id_]} for id_ in low if id_ in high]
    )


def against_fixed(answers: Answers, plan: str, rule: str, metric: str = "right") -> Difference | None:
    """Paired differences of a rule less a fixed number of steps of the same mean; None without records."""
    here = answers.where(plan=plan)
    chosen = here.where(budget=rule)
    steps = chosen.values("steps")
    if not steps:
        return None
    fixed = fixed_at(here.where(budget=FIXED), sum(steps) / len(steps), metric)
    first, second = chosen.pairs(fixed, metric)
    return difference(first, second) if first else None


def early(answers: Answers, plan: str, step: int) -> Answers:
    """Of the items that are right at the end of the plan: 1 where the draft of `step` is right already and
    every later one that was seen is, as `early`.
    """
    fixed = answers.where(plan=plan, budget=FIXED)
    found = []
    for (id_,), group in fixed.groups("id"):
        by_step = {row["planned"]: row["right"] for row in group.rows}
        if by_step[max(by_step)]:
            kept = all(right for planned_steps, right in by_step.items() if planned_steps >= step)
            found.append({"id": id_, "early": float(kept)})
    return Answers(found)


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)

    def gain(group: Answers) -> Cell:
        found = against_fixed(answers, group.rows[0]["plan"], group.rows[0]["budget"])
        return found.summary if found else None

    def by_now(group: Answers) -> Cell:
        return early(answers, group.rows[0]["plan"], group.rows[0]["planned"]).cell("early")

    decided = Answers([row for row in answers.rows if row["budget"] != FIXED])
    stopped: dict[str, Label] = {"plan": "plan", "stops by": "budget"}
    costs: dict[str, Column] = {"N": len, "steps": "steps", "right": "right"}
    rules = rows(decided.by(stopped), {**costs, "less fixed steps of that mean": gain, **_COLUMNS})
    levels = rows(
        (
            (labels | level, part)
            for labels, group in decided.by(stopped)
            if labels["stops by"] in (COMPLETE, *CLAIMED)
            for level, part in sorted(group.by({"difficulty": "difficulty"}), key=lambda g: str(g[0]))
        ),
        costs,
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
            **_COLUMNS,
        },
    )
    note = (
        "Right and F1 are of the draft: every prediction where the rule stops; F1 is against the same plan's "
        "last step. Anchors: the committed tokens, filled by the edge model. Bytes: the default selection. "
        f"Prophet's gaps are the published ones; entropy stops at 1 nat in all. {_CONTROL}"
    )
    convergence = (
        "The first share is of all items. The last counts an item from the step on from which every draft "
        "that was seen is right. Prophet, as section 5 cites it: 97% of GSM8K at half of the steps; it "
        "measured this with random order."
    )
    return [
        Table.of("budget", "Steps decided per query (section 6)", rules, note),
        Table.of("budget-difficulty", "Steps decided per query, by difficulty", levels),
        Table.of("convergence", "Right answers by step (Prophet, section 5)", fixed, convergence),
    ]


_COLUMNS = {
    "F1": "f1",
    "anchors: F1": "anchors_f1",
    "anchors: right": "anchors_right",
    "bytes": "bytes",
}
_CONTROL = (
    "The control gives every query the same number of steps, as many as the rule takes on average, and stops "
    "at a complete answer too."
)


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    for plan in (*ORDERS, PARALLEL):
        for rule in CLAIMED:
            gain = against_fixed(answers, plan, rule)
            if gain is None:
                continue
            s = gain.summary
            equal = s.n >= MIN_ITEMS and s.low > -EQUAL and s.high < EQUAL
            steps = answers.where(plan=plan, budget=rule).cell("steps")
            found.append(
                Claim(
                    f"{_PROPOSED[rule]} sets the steps of each query better than a fixed number does "
                    "(section 6).",
                    more("equal" if equal else "undecided" if s.n < MIN_ITEMS else gain.verdict),
                    f"Right answers against fixed steps of the same mean: {spread(s)}.",
                    f"{steps.mean:.1f} of {about.total_steps} steps [{steps.low:.1f}, {steps.high:.1f}]."
                    if steps
                    else "",
                    f"plan {plan}",
                )
            )
    for plan in (*ORDERS, RANDOM):
        found += _convergence(answers, about, plan)
    return found


_PROPOSED = {
    PROPHET: "Prophet's confidence gap",
    PLATEAU: "A plateau of the commit rate",
    ENTROPY: "The sum of the open entropies",
}


def _convergence(answers: Answers, about: About, plan: str) -> list[Claim]:
    half = about.total_steps // 2
    steps = sorted({row["planned"] for row in answers.where(plan=plan, budget=FIXED).rows})
    nearest = max((step for step in steps if step <= half), default=None)
    if nearest is None:
        return []
    found = early(answers, plan, nearest).values("early")
    cell = proportion(int(sum(found)), len(found))
    if cell is None:
        return []
    tenth = early(answers, plan, steps_near(steps, about.paper_steps[0])).cell("early")
    return [
        Claim(
            "Right answers are found by half of the steps in 97% of the cases (section 5, of Prophet).",
            verdict(cell.low >= CITED, cell.high < CITED, cell.n),
            f"Of those right in the end {cell.mean:.1%} [{cell.low:.1%}, {cell.high:.1%}] are right from "
            f"step {nearest} on (Wilson), N = {cell.n}.",
            f"From {about.share(about.paper_steps[0])} steps on: {tenth.mean:.1%}." if tenth else "",
            f"plan {plan}",
        )
    ]


def steps_near(steps: Sequence[int], wanted: int) -> int:
    """The number of the grid that is nearest to a step."""
    return min(steps, key=lambda step: abs(step - wanted))


def plots(records: Records, about: About) -> Iterator[Picture]:
    yield Picture("budget", "Steps per query, and right answers by step", _budgets(Answers.of(records)))


def _budgets(answers: Answers) -> bytes:
    """Right answers against mean steps: fixed budgets as a line, rules as points; a panel per plan.

    Rules as published: their other thresholds are in the table.
    """

    def draw(figure: Any) -> None:
        plans = [plan for plan in PLANS if plan != RANDOM]
        *panels, last = figure.subplots(1, len(plans) + 1, sharey=True)
        for axes, plan in zip(panels, plans, strict=True):
            here = answers.where(plan=plan)
            xs, ys = zip(*sorted(means(here.where(budget=FIXED), "planned", "steps", "right")), strict=True)
            axes.plot(xs, ys, color="black", linewidth=0.9, label="the same steps for all")
            for index, rule in enumerate(rule for rule in RULES if "," not in rule):
                for x, y in means(here.where(budget=rule), "budget", "steps", "right"):
                    axes.plot(x, y, MARKERS[index], markersize=5, label=rule)
            axes.set(xlabel="mean steps", xscale="log", title=f"plan {plan}")
        panels[0].set_ylabel("right answers")
        for plan in PLANS:
            last.plot(*_curve(answers.where(plan=plan, budget=FIXED)), label=plan)
        last.set(xlabel="steps planned", title="drafts by step")
        last.legend(fontsize=7)
        labelled = panels[0].get_legend_handles_labels()
        figure.legend(*labelled, loc="outside lower center", ncols=5, fontsize=8)

    return png(draw, (13, 4.5))


def _curve(fixed: Answers) -> tuple[list[float], list[float]]:
    """Right answers by the number of steps planned."""
    points = sorted(means(fixed, "planned", "planned", "right"))
    return [x for x, _ in points], [y for _, y in points]


EXPERIMENT = phase("budget", "Steps per query", measure, tables, claims, limit=40, plots=plots)
