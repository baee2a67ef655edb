"""Experiment `few_passes`: long answers after a tenth of the steps, of models with the same questions.

What teaching a model changes: tokens a pass, what an answer tells and how near it is to the model's own
finished answer after a few passes, when the model knows how long its answer is, and how much a device takes
back that writes early payloads; by model and commit rule, with paired differences to the first model. Not
responsible for the rules (see `passes`), for what is taken back (see `taken_back`) or for teaching (see
`lab.distil`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from common.cli import option
from edge_runtime.runtime import EdgeRuntime
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.hardness import LONG
from lab.experiments.passes import BASELINE, rule_config, runs_at
from lab.experiments.taken_back import taken_back
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Cell, Column, Table, less_than, rows
from payload import AnchorSet

FRACTIONS = (0.05, 0.1, 0.25)
EARLY_PASSES = (1, 2, 4, 8)
"""Passes after which the predicted length is compared with the answer's."""
DRAFT, SENT = "draft", "edge-aware"


@dataclass(frozen=True)
class FewPassesOptions:
    """Raises RequestError for rules that there are not."""

    beside: tuple[str, ...] = option((), "further models, asked the same", metavar="MODEL")
    rules: tuple[str, ...] = option((BASELINE,), "commit rules, as in `passes`", metavar="RULE")
    fractions: tuple[float, ...] = option(FRACTIONS, "after which shares of the steps", float, metavar="F")
    no_full_run: bool = option(False, "take each rule's finished answer for the full run, which costs most")
    refine: bool = option(False, "also count what a device takes back that writes out each payload in turn")

    def __post_init__(self) -> None:
        for rule in self.rules:
            rule_config(rule, DenoiseConfig())  # a wrong one fails before a model is loaded


@lru_cache
def _opened(name: str, edge: EdgeRuntime, dtype: str | None) -> Pipeline:
    """One model for the same edge model, which stays loaded."""
    return Pipeline.open(name, edge=edge, dtype=dtype)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    own: FewPassesOptions = setup.own
    edge = setup.lab.edges[0]
    pipelines = {setup.options.model: setup.lab.pipeline}
    pipelines |= {name: _opened(name, edge.runtime, setup.options.dtype) for name in own.beside}
    answers: list[list[Record]] = [[] for _ in items]
    for name, pipeline in pipelines.items():
        prompts = [pipeline.form.ids(item.prompt) for item in items]
        plan = pipeline.plan()
        marks = {steps_for(fraction, plan.total_steps): fraction for fraction in sorted(own.fractions)}
        full: Sequence[Denoised] = ()
        if not own.no_full_run:
            full = denoise(pipeline.model, prompts, replace(plan, commit="quota", stop="complete"))
        for rule in own.rules:
            stops = [*EARLY_PASSES, *marks, plan.total_steps]
            runs = runs_at(pipeline, prompts, rule, sorted(stops))
            for index, (item, run) in enumerate(zip(items, runs, strict=True)):
                case = Case(item, prompts[index], pipeline.form, edge, plan.canvas, setup.options.seed)
                whole = (full[index] if full else run[plan.total_steps]).answer
                row = {"model": name, "rule": rule, "full": case.judged(whole, whole)["graded"]}
                found = _figures(case, pipeline, run, marks, plan.total_steps, own)
                answers[index].append(row | found)
    for rows_ in answers:
        yield {"answers": rows_}


def _figures(
    case: Case,
    pipeline: Pipeline,
    run: Mapping[int, Denoised],
    marks: Mapping[int, float],
    end: int,
    own: FewPassesOptions,
) -> Record:
    """The figures of one run: finished, and after a few passes as a draft and as the device writes it."""
    finished = run[end].answer
    found: Record = {
        "tokens": len(finished),
        "passes": run[end].steps,
        "tokens a pass": len(finished) / run[end].steps,
        "finished": case.judged(finished, finished)["graded"],
    }
    for passes in EARLY_PASSES:
        found[f"length off {passes}"] = abs(run[passes].predicted_length - len(finished))
    sent: list[AnchorSet] = []
    for mark, fraction in marks.items():
        early = run[mark]
        selected = select(early, case.contract, Selection(EDGE_AWARE), pipeline.scorer)
        sent.append(selected.anchors)
        draft = early.predicted_answer
        texts = {DRAFT: draft, SENT: case.fill(selected.anchors).ids}
        found[f"bytes {fraction:g}"] = case.size(selected.anchors, extras=early.extras())
        if open_ := [p for p in range(len(draft)) if early.ids[p] == early.mask_id]:
            kept = [draft[p : p + 1] == finished[p : p + 1] for p in open_]
            found |= {f"open {fraction:g}": len(open_), f"kept {fraction:g}": sum(kept) / len(open_)}
            found[f"probability {fraction:g}"] = sum(early.confidence[p] for p in open_) / len(open_)
        for name, text in texts.items():
            judged = case.judged(text, finished)
            found |= {
                f"{name} graded {fraction:g}": judged["graded"],
                f"{name} F1 {fraction:g}": judged["f1"],
            }
    if own.refine:
        back = taken_back(case.edge.runtime.engine, case.prompt_ids, sent, case.canvas)
        found |= {"taken back": back.retracted, "changed": back.changed}
    return found


def tables(records: Records, about: About) -> list[Table]:
    own: FewPassesOptions = about.own
    long = [record for record in records if all(row["tokens"] >= LONG for row in record["answers"])]
    answers = Answers.of(long)
    first = answers.where(model=about.model, rule=own.rules[0])
    labels = {"model": "model", "rule": "rule"}

    def less(metric: str) -> Column:
        return less_than(first, metric)

    whole: dict[str, Column] = {
        "N": len,
        "tokens": "tokens",
        "passes": "passes",
        "tokens a pass": "tokens a pass",
        "graded, full run": "full",
        "difference": less("full"),
        "graded, finished": "finished",
    }
    found = [Table.of("whole", "Finished long answers", rows(answers.by(labels), whole))]
    for fraction in own.fractions:
        columns: dict[str, Column] = {}
        for name in (DRAFT, SENT):
            columns[f"{name}: graded"] = f"{name} graded {fraction:g}"
            columns[f"{name}: of the full run's"] = _share(f"{name} graded {fraction:g}")
            columns[f"{name}: F1"] = f"{name} F1 {fraction:g}"
            columns[f"{name}: F1, difference"] = less(f"{name} F1 {fraction:g}")
        columns["bytes"] = f"bytes {fraction:g}"
        title = f"Long answers after {100 * fraction:.3g}% of the steps"
        found.append(Table.of(f"at {fraction:g}", title, rows(answers.by(labels), columns), NOTE))
    lengths: dict[str, Column] = {f"after {passes}": f"length off {passes}" for passes in EARLY_PASSES}
    title = "Tokens by which the predicted length of a long answer is wrong, by passes"
    found.append(Table.of("length", title, rows(answers.by(labels), lengths)))
    if own.refine:
        columns = {"tokens": "tokens", "taken back": "taken back", "changed": "changed"}
        after = ", ".join(f"{100 * fraction:.3g}%" for fraction in sorted(own.fractions))
        title = f"Tokens that a device takes back of payloads after {after} of the steps, each written out"
        note = "changed: of these, those in whose place the next text has another token, or none."
        found.append(Table.of("refined", title, rows(answers.by(labels), columns), note))
    for fraction in own.fractions:
        columns = {
            "open tokens": f"open {fraction:g}",
            "their probability": f"probability {fraction:g}",
            "the same in the finished answer": f"kept {fraction:g}",
        }
        title = f"Open tokens of the draft after {100 * fraction:.3g}% of the steps, where there are any"
        found.append(Table.of(f"calibration {fraction:g}", title, rows(answers.by(labels), columns)))
    return found


NOTE = (
    "F1 is against the same model's own finished answer by the same rule. Differences: paired, to the first "
    "row. draft: every prediction as it stands; edge-aware: what the device writes from the payload. Of the "
    "full run's: the graded mean over that of the full run. One more pass predicts every open position, "
    "with nothing there or with what the device writes between the commits."
)


def _share(metric: str) -> Callable[[Answers], Cell]:
    """The mean of a metric over that of the full run."""

    def of(group: Answers) -> Cell:
        early, full = group.cell(metric), group.cell("full")
        return early.mean / full.mean if early and full and full.mean else None

    return of


EXPERIMENT = Experiment(
    "few_passes",
    "Long answers after a tenth of the steps: models taught for few passes, and others",
    measure,
    tables,
    options=FewPassesOptions,
    defaults={"prompts": 200, "data": ("testbed:profile",)},
)
