"""Experiment `passes`: the main table, by length of the answer.

The default's payload after shares of the steps and every prediction of the same run, beside controls of at
most as many bytes (see `equal_bytes`), each held against the finished answer of its own run. Not responsible
for commits (see `sampling.commits`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import CONFIDENCE as BY_CONFIDENCE
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, DenoiseConfig, steps_for
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, Selection
from common.cli import option
from lab.case import Case
from lab.conditions import Situation, plan
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.equal_bytes import controls
from lab.questions.items import Item
from lab.store import Record
from lab.tables import LENGTHS, Answers, Column, Row, Table, less_than, mean, rows

FRACTIONS = (0.1, 0.25, 0.4)
EARLY = f"early stop: every prediction, rule {PARALLEL_THRESHOLD}"
AWARE = f"edge-aware, rule {PARALLEL_THRESHOLD}"
READOUTS = {
    EARLY: Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)),
    AWARE: Selection(EDGE_AWARE),
}
"""What is sent of an unfinished run, by its name in the table; the last is the default."""
FULL_RUN = "full run"
LENGTH_GROUPS: Mapping[str, tuple[int, float]] = {
    **LENGTHS,
    "60 to 119": (60, 120),
    "120 and more": (120, math.inf),
}
"""Groups of answers by the tokens of the full run's: from, and below. The last two are parts of another."""


@dataclass(frozen=True)
class PassesOptions:
    fractions: tuple[float, ...] = option(FRACTIONS, "after which shares of the steps", float, metavar="F")


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
    assert pipeline.scorer is not None  # the laboratory opens a pipeline with an edge model
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
            at = Situation(run[passes], run[end].answer, case.contract, pipeline.scorer, case.seed)
            its = replace(at, early=beside[passes], full=beside[end].answer)
            sent = {name: _sent(case, at, selection) for name, selection in READOUTS.items()}
            figures = controls(case, at, its, sent[AWARE]["bytes"]) | sent
            answers += [{"passes": passes, "condition": name} | row for name, row in figures.items()]
        judged = case.judged(whole.answer, whole.answer)
        found = {"tokens": len(whole.answer), "right": judged["right"], "graded": judged["graded"]}
        yield found | {"answers": answers}


def _sent(case: Case, at: Situation, selection: Selection) -> Record:
    anchors, every = at.select(selection), selection is READOUTS[EARLY]
    text = at.early.predicted_answer if every else case.fill(anchors).ids
    size = case.size(anchors, extras=at.early.extras())
    return case.judged(text, at.full) | {"bytes": size, "sent": len(anchors)}


def by_length(records: Records) -> dict[str, list[Record]]:
    """The records in the groups that have any."""
    found = {
        name: [record for record in records if low <= record["tokens"] < high]
        for name, (low, high) in LENGTH_GROUPS.items()
    }
    return {name: part for name, part in found.items() if part}


def tables(records: Records, about: About) -> list[Table]:
    groups = by_length(records)
    return [_beside(groups, about), *(_of_length(name, part, about) for name, part in groups.items())]


def _labelled(records: Records, about: About) -> Iterator[tuple[Row, Answers]]:
    def share(passes: int) -> str:
        return f"{passes} ({passes / about.total_steps:.0%})"

    return Answers.of(records).by({"passes": ("passes", share), "condition": "condition"})


def _beside(groups: Mapping[str, Records], about: About) -> Table:
    """The figures with the lengths beside one another."""
    found: dict[tuple[object, ...], Row] = {}
    full: Row = {"passes": f"{about.total_steps} (100%)", "condition": FULL_RUN}
    for length, part in groups.items():
        columns: dict[str, Column] = {
            f"F1, {length}": "f1",
            f"graded, {length}": "graded",
            f"right, {length}": "right",
            f"bytes, {length}": mean("bytes"),
        }
        for row in rows(_labelled(part, about), columns):
            found.setdefault((row["passes"], row["condition"]), {}).update(row)
        full[f"F1, {length}"] = 1.0
        for metric in ("graded", "right"):
            full[f"{metric}, {length}"] = sum(record[metric] for record in part) / len(part)
    shown = [*found.values(), full]
    names = list(dict.fromkeys(column for row in shown for column in row))
    prompts = ", ".join(f"{length}: {len(part)}" for length, part in groups.items())
    note = f"F1 is against the finished answer of the row's own run. Prompts by tokens: {prompts}."
    return Table("by length", "By tokens of the answer", names, shown, note)


def _of_length(length: str, records: Records, about: About) -> Table:
    """Every condition after every number of passes, with what the default has more."""
    aware = Answers.of(records).where(condition=AWARE)

    def target(group: Answers) -> Answers:
        """The default's answers after as many passes; none for the default itself."""
        first = group.rows[0]
        return Answers() if first["condition"] == AWARE else aware.where(passes=first["passes"])

    columns: dict[str, Column] = {}
    for name, metric in (("F1", "f1"), ("graded", "graded"), ("right", "right")):
        columns[name] = metric
        columns[f"{name}, target less it"] = less_than(target, metric, turned=True)
    columns |= {"sent": mean("sent"), "bytes": mean("bytes")}
    right = sum(record["right"] for record in records) / len(records)
    title = f"Answers of {length} tokens: {len(records)} prompts, full run right {right:.3f}"
    return Table.of(f"length {length}", title, rows(_labelled(records, about), columns), f"Target: {AWARE}.")


EXPERIMENT = Experiment(
    "passes",
    "The default beside controls of at most as many bytes, by length of the answer",
    measure,
    tables,
    options=PassesOptions,
)
