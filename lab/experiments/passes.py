"""Experiment `passes`: the main table, by length of the answer.

The default's payload after shares of the steps and every prediction of the same run, beside controls of at
most as many bytes, each held against the finished answer of its own run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import CONFIDENCE as BY_CONFIDENCE
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, DenoiseConfig, steps_for
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import largest_count
from common.cli import option
from lab.case import Case
from lab.conditions import (
    ALONE,
    ANCHORS,
    FIRST,
    FULL,
    LEADING,
    PREFIX,
    SCATTERED,
    SUREST,
    Situation,
    committed,
    default,
    draft,
    first_predictions,
    leading_run,
    plan,
    prefix,
    scattered,
    surest_predictions,
)
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.store import Record
from lab.tables import LENGTHS, Answers, Column, Label, Row, Table, less_than, mean, rows
from payload import AnchorSet

FRACTIONS = (0.1, 0.25, 0.4)
EARLY = f"early stop: every prediction, rule {PARALLEL_THRESHOLD}"
AWARE = f"edge-aware, rule {PARALLEL_THRESHOLD}"
EQUAL: Mapping[str, Callable[[Situation, int], AnchorSet]] = {
    PREFIX: prefix,
    SCATTERED: scattered,
    FIRST: first_predictions,
    SUREST: surest_predictions,
}
"""Controls of a number of tokens: of the finished answer, and of the predictions."""
LENGTH_GROUPS: Mapping[str, tuple[int, float]] = {
    **LENGTHS,
    "60 to 119": (60, 120),
    "120 and more": (120, math.inf),
}
"""Groups of answers by the tokens of the full run's: from, and below. The last two are parts of another."""
METRICS = {"F1": "f1", "graded": "graded", "right": "right"}


@dataclass(frozen=True)
class PassesOptions:
    fractions: tuple[float, ...] = option(FRACTIONS, "after which shares of the steps", metavar="F")


def in_parallel(base: DenoiseConfig) -> DenoiseConfig:
    """Until complete, with commits from PARALLEL_THRESHOLD on, whatever the checkpoint states."""
    return replace(base, order=BY_CONFIDENCE, commit=PARALLEL_THRESHOLD, stop="complete")


def runs_at(
    pipeline: Pipeline, prompts: Sequence[list[int]], config: DenoiseConfig, marks: Sequence[int]
) -> list[dict[int, Denoised]]:
    """The run of each prompt after each number of passes; a complete answer stays as it is."""
    found: list[dict[int, Denoised]] = [{} for _ in prompts]
    batch: ContinuousBatch[int] = ContinuousBatch(pipeline.model, config)
    for index, prompt in enumerate(prompts):
        batch.join(index, prompt, marks)
    while len(batch):
        for index, run, done in batch.step():
            reached = (m for m in marks if m == run.steps or (done and m >= run.steps))
            found[index] |= dict.fromkeys(reached, run)
    return found


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    base = pipeline.plan()
    prompts, end = [pipeline.form.ids(item.prompt) for item in items], base.total_steps
    marks = sorted({steps_for(fraction, end) for fraction in setup.own.fractions})
    full = denoise(pipeline.model, prompts, replace(base, commit="quota", stop="complete"))
    runs = runs_at(pipeline, prompts, in_parallel(base), [*marks, end])
    paper = runs_at(pipeline, prompts, replace(plan("entropy", base), stop="complete"), [*marks, end])
    for item, prompt, whole, run, beside in zip(items, prompts, full, runs, paper, strict=True):
        case = Case(item, prompt, pipeline.form, edge, base.canvas, setup.options.seed)
        answers: list[Record] = []
        for passes in marks:
            at, its = (
                Situation(of[passes], of[end].answer, case.contract, edge.scorer, case.seed)
                for of in (run, beside)
            )
            anchors = draft(at)
            early = case.judged(at.early.predicted_answer, at.full) | _sizes(case, anchors, at)
            sent = {EARLY: early, AWARE: _filled(case, default(at), at)}
            figures = controls(case, at, its, sent[AWARE]["bytes"]) | sent
            answers += [{"passes": passes, "condition": name} | row for name, row in figures.items()]
        judged = case.judged(whole.answer, whole.answer)
        found = {"tokens": len(whole.answer), "right": judged["right"], "graded": judged["graded"]}
        yield found | {"answers": answers}


def _sizes(case: Case, anchors: AnchorSet, at: Situation) -> Record:
    return {"sent": len(anchors), "bytes": case.size(anchors, extras=at.early.extras())}


def _filled(case: Case, anchors: AnchorSet, at: Situation) -> Record:
    return case.judged(case.fill(anchors).ids, at.full) | _sizes(case, anchors, at)


def _told(at: Situation, take: Callable[[Situation, int], AnchorSet], length: int, count: int) -> AnchorSet:
    return replace(take(at, count), length=length)


def controls(case: Case, at: Situation, paper: Situation, size: int) -> dict[str, Record]:
    """What at most `size` bytes would be worth otherwise, by name, each scored against its own run: the edge
    model alone; of the run in the paper's order the anchors and their leading run; of as many tokens as fit,
    told a length as the payload is, those of `EQUAL`.

    at: the run whose payload has this size. paper: the run in the paper's order, of as many passes.
    """
    found = {ALONE: case.judged(case.alone().ids, at.full) | {"sent": 0, "bytes": 0}}
    found |= {
        ANCHORS: _filled(case, committed(paper), paper),
        LEADING: _filled(case, leading_run(paper), paper),
    }
    for name, take in EQUAL.items():
        length = len(at.early.predicted_answer if name in (FIRST, SUREST) else at.full)
        told = partial(_told, at, take, length)

        def fits(count: int, told: Callable[[int], AnchorSet] = told) -> bool:
            return bool(_sizes(case, told(count), at)["bytes"] <= size)

        found[name] = _filled(case, told(largest_count(length, fits)), at)
    return found


def tables(records: Records, about: About) -> list[Table]:
    groups = {
        name: [record for record in records if low <= record["tokens"] < high]
        for name, (low, high) in LENGTH_GROUPS.items()
    }
    groups = {name: part for name, part in groups.items() if part}
    return [_beside(groups, about), *(_of_length(name, part, about) for name, part in groups.items())]


def _labels(about: About) -> dict[str, Label]:
    return {
        "passes": ("passes", lambda passes: f"{passes} ({passes / about.total_steps:.0%})"),
        "condition": "condition",
    }


def _beside(groups: Mapping[str, Records], about: About) -> Table:
    """The figures with the lengths beside one another."""
    found: dict[tuple[object, ...], Row] = {}
    full: Row = {"passes": f"{about.total_steps} (100%)", "condition": FULL}
    for length, part in groups.items():
        columns: dict[str, Column] = {f"{says}, {length}": metric for says, metric in METRICS.items()}
        columns[f"bytes, {length}"] = mean("bytes")
        for row in rows(Answers.of(part).by(_labels(about)), columns):
            found.setdefault((row["passes"], row["condition"]), {}).update(row)
        full[f"F1, {length}"] = 1.0
        full |= {f"{metric}, {length}": mean(metric)(Answers(part)) for metric in ("graded", "right")}
    shown = [*found.values(), full]
    names = list(dict.fromkeys(column for row in shown for column in row))
    prompts = ", ".join(f"{length}: {len(part)}" for length, part in groups.items())
    note = f"F1 is against the finished answer of the row's own run. Prompts by tokens: {prompts}."
    return Table("by length", "By tokens of the answer", names, shown, note)


def _of_length(length: str, records: Records, about: About) -> Table:
    """Every condition after every number of passes, with what the default has more."""
    answers = Answers.of(records)
    aware = answers.where(condition=AWARE)

    def target(group: Answers) -> Answers:
        """The default's answers after as many passes; none for the default itself."""
        first = group.rows[0]
        return Answers() if first["condition"] == AWARE else aware.where(passes=first["passes"])

    columns: dict[str, Column] = {}
    for says, metric in METRICS.items():
        columns |= {says: metric, f"{says}, target less it": less_than(target, metric, turned=True)}
    columns |= {"sent": mean("sent"), "bytes": mean("bytes")}
    right = sum(record["right"] for record in records) / len(records)
    title = f"Answers of {length} tokens: {len(records)} prompts, full run right {right:.3f}"
    return answers.table(f"length {length}", title, _labels(about), columns, f"Target: {AWARE}.")


EXPERIMENT = Experiment(
    "passes",
    "The default beside controls of at most as many bytes, by length of the answer",
    measure,
    tables,
    options=PassesOptions,
)
