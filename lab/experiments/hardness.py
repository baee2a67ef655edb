"""Experiment `hardness`: how hard a pair's questions are in few steps, the testbed's acceptance.

What the full run, the edge model alone, the first pass and parallel commits make of held-out questions,
beside the range in which each figure is like that of real models. Not responsible for what a selection makes
of the runs (see `passes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, commit_in_parallel
from cloud_anchor.sampling.sampler import denoise
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.store import Record
from lab.tables import LENGTHS, Answers, Row, Table

LONG = LENGTHS["60 and more"][0]
HARDER = ("sum",)
"""Kinds of which the full run needs only 0.6 right: every step depends on the one before."""


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some items, denoised together: one token a pass to the end, one pass alone, and every
    position at PARALLEL_THRESHOLD.
    """
    lab = setup.lab
    model, form = lab.pipeline.model, lab.pipeline.form
    prompts = [form.ids(item.prompt) for item in items]
    plain = replace(lab.base, commit="quota", total_steps=lab.base.canvas, stop="complete")
    plain = replace(plain, parallel=PARALLEL_THRESHOLD)  # whatever the checkpoint states
    configs = (plain, replace(plain, steps=1), commit_in_parallel(plain))
    runs = zip(*(denoise(model, prompts, config) for config in configs), strict=True)
    for item, prompt, (full, first, parallel) in zip(items, prompts, runs, strict=True):
        case = Case(item, prompt, form, lab.edges[0], lab.base.canvas, setup.options.seed)
        answer = full.answer
        judged, early = case.judged(answer, answer), case.judged(first.predicted_answer, answer)
        own = case.own(answer, range(len(answer)))
        yield {
            "tokens": len(answer),
            "full run": judged["right"],
            "graded": judged["graded"],
            "right": case.judged(case.alone().ids, answer)["right"],
            "first f1": early["f1"],
            "first right": early["right"],
            "disagrees": None if own is None else 1 - own,
            "pace": len(parallel.answer) / parallel.steps,
        }


def tables(records: Records, about: About) -> list[Table]:
    every = Answers(records)
    long = Answers([record for record in records if record["tokens"] >= LONG])
    on = f"{LONG} tokens on"
    criteria = [
        (f"full run accuracy, {kind}", 0.6 if kind in HARDER else 0.8, math.inf, group.cell("full run"))
        for (kind,), group in every.groups("benchmark")
    ]
    criteria += [
        ("full run coverage", 0.9, math.inf, every.cell("graded")),
        ("edge alone accuracy", 0, 0.25, every.cell("right")),
        (f"first pass agreement, {on}", 0, 0.8, long.cell("first f1")),
        (f"first pass accuracy, {on}", 0, 0.4, long.cell("first right")),
        ("edge disagrees, share of tokens", 0.25, 0.4, every.cell("disagrees")),
        (f"tokens a pass at {PARALLEL_THRESHOLD}, {on}", 1.3, 4, long.cell("pace")),
    ]
    shown: list[Row] = []
    for name, low, high, found in criteria:
        wanted = f"{low:g} to {high:g}" if low else f"<= {high:g}"
        row: Row = {"figure": name, "wanted": f">= {low:g}" if high == math.inf else wanted, "found": found}
        shown.append(row | {"reached": "yes" if found and low <= found.mean <= high else "no"})
    right = sum(long.values("full run"))
    note = f"Answers of {LONG} tokens and more: {len(long)}, right: {right:g}."
    return [Table.of("hardness", f"{len(records)} held-out questions", shown, note)]


EXPERIMENT = Experiment(
    "hardness",
    "How hard a pair's questions are in few steps: the testbed's acceptance",
    measure,
    tables,
    defaults={"prompts": 140, "data": ("testbed",)},
)
