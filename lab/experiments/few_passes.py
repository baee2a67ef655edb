"""Experiment `few_passes`: long answers after a tenth of the steps, of models with the same questions.

What teaching a model changes: tokens a pass, what an answer covers and how near it is to the model's own
finished answer after a few passes, and when the model knows how long its answer is; with paired differences
to the first model. Not responsible for teaching (see `lab.distil`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import Denoised
from common.cli import option
from edge_runtime.runtime import EdgeRuntime
from lab.case import Case
from lab.conditions import Situation, default
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.passes import in_parallel, runs_at
from lab.questions.items import Item
from lab.store import Record
from lab.tables import LENGTHS, Answers, Column, Table, less_than

LONG = LENGTHS["60 and more"][0]
EARLY_PASSES = (1, 2, 4, 8)
"""Passes after which the predicted length is compared with the answer's."""


@dataclass(frozen=True)
class FewPassesOptions:
    beside: tuple[str, ...] = option((), "further models, asked the same", metavar="MODEL")
    fractions: tuple[float, ...] = option((0.05, 0.1, 0.25), "after which shares of the steps")


@lru_cache
def _opened(name: str, edge: EdgeRuntime, dtype: str | None) -> Pipeline:
    """One model for the same edge model, which stays loaded."""
    return Pipeline.open(name, edge=edge, dtype=dtype)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    edge = setup.lab.edges[0]
    pipelines = {setup.options.model: setup.lab.pipeline}
    pipelines |= {name: _opened(name, edge.runtime, setup.options.dtype) for name in setup.own.beside}
    answers: list[list[Record]] = [[] for _ in items]
    for name, pipeline in pipelines.items():
        prompts = [pipeline.form.ids(item.prompt) for item in items]
        plan = pipeline.plan()
        marks = {steps_for(fraction, plan.total_steps): fraction for fraction in setup.own.fractions}
        stops = sorted({*EARLY_PASSES, *marks, plan.total_steps})
        runs = runs_at(pipeline, prompts, in_parallel(plan), stops)
        for item, prompt, run, found in zip(items, prompts, runs, answers, strict=True):
            case = Case(item, prompt, pipeline.form, edge, plan.canvas, setup.options.seed)
            found.append({"model": name} | _figures(case, run, marks))
    for each in answers:
        yield {"answers": each}


def _figures(case: Case, run: Mapping[int, Denoised], marks: Mapping[int, float]) -> Record:
    """The figures of one run: finished, and after a few passes as a draft and as the device writes it."""
    whole = run[max(run)]
    finished = whole.answer
    found: Record = {
        "tokens": len(finished),
        "passes": whole.steps,
        "tokens a pass": len(finished) / whole.steps,
        "finished": case.judged(finished, finished)["graded"],
    }
    for passes in EARLY_PASSES:
        found[f"length off {passes}"] = abs(run[passes].predicted_length - len(finished))
    for mark, fraction in marks.items():
        early = run[mark]
        anchors = default(Situation(early, finished, case.contract, case.edge.scorer, case.seed))
        found[f"bytes {fraction:g}"] = case.size(anchors, extras=early.extras())
        texts = {"draft": early.predicted_answer, "edge-aware": case.fill(anchors).ids}
        for name, text in texts.items():
            judged = case.judged(text, finished)
            found |= {f"{name} {metric} {fraction:g}": judged[metric] for metric in ("graded", "f1")}
    return found


def tables(records: Records, about: About) -> list[Table]:
    long = [record for record in records if all(row["tokens"] >= LONG for row in record["answers"])]
    answers = Answers.of(long)
    first = answers.where(model=about.model)
    whole: dict[str, Column] = {
        "N": len,
        "tokens": "tokens",
        "passes": "passes",
        "tokens a pass": "tokens a pass",
        "graded, finished": "finished",
        "difference": less_than(first, "finished"),
    }
    shown = [("whole", "Finished long answers", whole)]
    for fraction in about.own.fractions:
        columns: dict[str, Column] = {}
        for name in ("draft", "edge-aware"):
            f1 = f"{name} f1 {fraction:g}"
            columns[f"{name}: graded"] = f"{name} graded {fraction:g}"
            columns |= {f"{name}: F1": f1, f"{name}: F1, difference": less_than(first, f1)}
        columns["bytes"] = f"bytes {fraction:g}"
        shown.append((f"at {fraction:g}", f"Long answers after {100 * fraction:.3g}% of the steps", columns))
    title = "Tokens by which the predicted length of a long answer is wrong, by passes"
    shown.append(("length", title, {f"after {passes}": f"length off {passes}" for passes in EARLY_PASSES}))
    return [answers.table(name, title, {"model": "model"}, columns, NOTE) for name, title, columns in shown]


NOTE = (
    "F1 is against the same model's own finished answer. Differences: paired, to the first row. draft: every "
    "prediction as it stands; edge-aware: what the device writes from the payload."
)

EXPERIMENT = Experiment(
    "few_passes",
    "Long answers after a tenth of the steps: models taught for few passes, and others",
    measure,
    tables,
    options=FewPassesOptions,
    defaults={"prompts": 200, "data": ("testbed:profile",)},
)
