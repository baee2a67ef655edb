"""Commits of one model in two number formats: `python -m lab run number_formats`.

The same held-out prompts are denoised in float32 and in bfloat16 (or another format), all else being equal,
and what is committed is compared. Responsible for the measurement and its table. Not responsible for the
formats (see `model.memory`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cloud_anchor.metrics import word_f1
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import DiffusionModel
from cloud_anchor.sampling.sampler import denoise
from common.cli import option
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Row, Table

WIDE = "float32"
QUOTA, PARALLEL = "the schedule's quota", "parallel, until complete"
PLANS = ((QUOTA, 0.1), (QUOTA, 0.25), (PARALLEL, 1.0))
"""Commit rules and shares of the steps: the schedule's quota, and all tokens from 0.9 on until complete."""


@dataclass(frozen=True)
class FormatOptions:
    narrow: str = option("bfloat16", f"format to compare with {WIDE}: bfloat16, float16")


@lru_cache(2)
def _model(source: str, dtype: str) -> DiffusionModel:
    return load_model(source, device="cpu", dtype=dtype)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    models = [_model(setup.options.model, name) for name in (WIDE, setup.own.narrow)]
    form, plan = setup.lab.pipeline.form, setup.lab.base
    ids = [form.ids(item.prompt) for item in items]
    runs = []
    for rule, share in PLANS:
        steps = replace(plan, steps=steps_for(share, plan.total_steps))
        config: DenoiseConfig = (
            commit_in_parallel(steps) if rule == PARALLEL else replace(steps, commit="quota")
        )
        runs.append([denoise(model, ids, config, len(ids)) for model in models])
    for index in range(len(items)):
        rows = []
        for (rule, share), (wide, narrow) in zip(PLANS, runs, strict=True):
            texts = [form.tokenizer.decode(run.predicted_answer) for run in (wide[index], narrow[index])]
            about = {"commits": rule, "share": share, "answers": float(texts[0] == texts[1])}
            rows.append(about | {"f1": word_f1(*texts)} | _commits(wide[index], narrow[index]))
        yield {"answers": rows}


def _commits(wide: Denoised, narrow: Denoised) -> dict[str, int]:
    """Positions committed in either format, by both, by both with one token, and by both in one step."""
    first, second = (
        {at: pair for at, pair in enumerate(zip(run.ids, run.when, strict=True)) if pair[1]}
        for run in (wide, narrow)
    )
    shared = first.keys() & second.keys()
    return {
        "either": len(first.keys() | second.keys()),
        "both": len(shared),
        "tokens": sum(first[at][0] == second[at][0] for at in shared),
        "steps": sum(first[at] == second[at] for at in shared),
    }


def tables(records: Records, about: About) -> list[Table]:
    lines: list[Row] = []
    for (rule, share), group in Answers.of(records).groups("commits", "share"):
        either = max(1.0, sum(group.values("either")))
        line: Row = {"commits": rule, "steps": "" if rule == PARALLEL else f"{share:.0%}"}
        for column, field in (
            ("in both", "both"),
            ("the same token", "tokens"),
            ("in the same step", "steps"),
        ):
            line[column] = round(sum(group.values(field)) / either, 3)
        for column, field in (("whole text the same", "answers"), ("word F1", "f1")):
            line[column] = round(sum(group.values(field)) / len(group), 3)
        lines.append(line)
    title = f"{about.own.narrow} against {WIDE}, shares of the positions that either committed"
    return [Table.of("formats", title, lines)]


EXPERIMENT = Experiment(
    "number_formats",
    "Commits of one model in two number formats",
    measure,
    tables,
    options=FormatOptions,
    defaults={"prompts": 100},
    together=10,
)
