"""Experiment `hardness`: how hard a pair's questions are in few steps.

The testbed's own acceptance: what the full run, the edge model alone, the first pass and a confidence
threshold make of held-out questions, beside the range in which each figure is like that of real models.
Responsible for the figures and their ranges. Not responsible for what a selection
makes of the runs (see `passes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cloud_anchor.metrics import word_f1
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.scorer import Span
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import FillRequest
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.questions.judge import graded, is_right
from lab.statistics import Summary, share, summary
from lab.store import Record
from lab.tables import Row, Table
from payload import AnchorSet

LONG = 60
"""Tokens of the full run's answer from which it counts as long."""
HARDER = ("sum",)
"""Kinds of which the full run needs only 0.6 right: every step depends on the one before."""


@dataclass(frozen=True)
class Criterion:
    """A measured figure beside the range required of it; found: None where no item shows it."""

    name: str
    low: float
    high: float
    found: Summary | None

    @property
    def reached(self) -> bool:
        return self.found is not None and self.low <= self.found.mean <= self.high

    @property
    def wanted(self) -> str:
        if self.high == math.inf:
            return f">= {self.low:g}"
        return f"<= {self.high:g}" if self.low == 0 else f"{self.low:g} to {self.high:g}"


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some items, denoised together: one token a pass to the end, one pass alone, and every
    position at PARALLEL_THRESHOLD.
    """
    lab = setup.lab
    prompts = [lab.pipeline.form.ids(item.prompt) for item in items]
    plain = replace(lab.base, commit="quota", total_steps=lab.base.canvas, stop="complete")
    plain = replace(plain, parallel=PARALLEL_THRESHOLD)  # whatever the checkpoint states

    def runs(config: DenoiseConfig) -> list[Denoised]:
        return denoise(lab.pipeline.model, prompts, config)

    edge, contract = lab.edges[0], lab.pipeline.form.contract
    decode = lab.pipeline.form.tokenizer.decode
    nothing = AnchorSet.empty(lab.base.canvas, contract)
    ended = zip(
        items, runs(plain), runs(replace(plain, steps=1)), runs(commit_in_parallel(plain)), strict=True
    )
    for item, full, first, parallel in ended:
        answer, early = decode(full.answer), decode(first.predicted_answer)
        request = FillRequest(list(full.prompt_ids), nothing)
        alone = decode([token.id for token in edge.runtime.fill(request, FillOptions(score_anchors=False))])
        reading = edge.scorer.score(Span(full.prompt_ids, full.answer))
        others = [token != int(own) for token, own in zip(full.answer, reading.greedy, strict=False)]
        yield {
            "tokens": len(full.answer),
            "full": float(is_right(item, answer)),
            "graded": graded(item, answer),
            "alone": float(is_right(item, alone)),
            "first": {"right": float(is_right(item, early)), "f1": word_f1(early, answer)},
            "disagrees": sum(others) / len(others) if others else None,
            "parallel": {
                "right": float(is_right(item, decode(parallel.answer))),
                "tokens": len(parallel.answer),
                "steps": parallel.steps,
            },
        }


def figures(records: Records) -> list[Criterion]:
    """Every figure of the acceptance, from the records of all items."""

    def of(
        part: Records, value: Callable[[Record], float], how: Callable[..., Summary] = summary
    ) -> Summary | None:
        return how([value(r) for r in part], [r.get("subject") for r in part]) if part else None

    found = []
    for kind in dict.fromkeys(record["benchmark"] for record in records):
        own = [record for record in records if record["benchmark"] == kind]
        right = of(own, lambda r: r["full"], share)
        found.append(Criterion(f"full run right, {kind}", 0.6 if kind in HARDER else 0.8, math.inf, right))
    long = _long(records)
    told = [record for record in records if record["disagrees"] is not None]
    first = f"first pass {{}}, {LONG} tokens on".format
    pace = of(long, lambda r: r["parallel"]["tokens"] / r["parallel"]["steps"])
    return [
        *found,
        Criterion(
            "full run, share told of what was asked", 0.9, math.inf, of(records, lambda r: r["graded"])
        ),
        Criterion("edge alone right", 0, 0.25, of(records, lambda r: r["alone"], share)),
        Criterion(first("F1"), 0, 0.8, of(long, lambda r: r["first"]["f1"])),
        Criterion(first("right"), 0, 0.4, of(long, lambda r: r["first"]["right"], share)),
        Criterion("edge disagrees, share of tokens", 0.25, 0.4, of(told, lambda r: r["disagrees"])),
        Criterion(f"tokens a pass at {PARALLEL_THRESHOLD}, {LONG} tokens on", 1.3, 4, pace),
    ]


def _long(records: Records) -> Records:
    return [record for record in records if record["tokens"] >= LONG]


def tables(records: Records, about: About) -> list[Table]:
    found: list[Row] = [
        {
            "figure": figure.name,
            "wanted": figure.wanted,
            "found": figure.found,
            "reached": "yes" if figure.reached else "no",
        }
        for figure in figures(records)
    ]
    long = _long(records)
    note = f"Answers of {LONG} tokens and more: {len(long)}, right in full: {sum(r['full'] for r in long):g}."
    return [Table.of("hardness", f"{len(records)} held-out questions", found, note)]


EXPERIMENT = Experiment(
    "hardness",
    "How hard a pair's questions are in few steps: the testbed's acceptance",
    measure,
    tables,
    defaults={"prompts": 140, "data": ("testbed",)},
)
