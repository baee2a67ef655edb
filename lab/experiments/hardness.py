"""How hard a pair's questions are in few steps: `python -m lab.experiments.hardness`.

The testbed's own acceptance: what the full run, the edge model alone, the first pass and a confidence
threshold make of held-out questions, beside the range in which each figure is like that of real models.
Resumable; writes JSON. Responsible for the figures and their ranges. Not responsible for what a selection
makes of the runs (see `passes`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cloud_anchor.metrics import word_f1
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.guide import Span
from cloud_anchor.sampling.sampler import denoise
from common.cli import run_command
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import FillRequest
from lab.case import Lab
from lab.loading import Wanted, fingerprint, open_lab
from lab.options import add_questions, questions
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.statistics import Summary, summary
from lab.store import Record, Store
from payload import AnchorSet

LONG = 60
"""Tokens of the full run's answer from which it counts as long."""
BATCH = 8
PHASE = "hardness"
HARDER = ("sum",)
"""Kinds of which the full run needs only 0.6 right: every step depends on the one before."""


@dataclass(frozen=True)
class Criterion:
    """A measured figure beside the range that is asked of it; found: None where no item shows it."""

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

    def to_json(self) -> Record:
        found = asdict(self.found) if self.found else None
        return {"name": self.name, "wanted": self.wanted, "reached": self.reached, "found": found}


def measure_group(lab: Lab, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some items, denoised together: one token a pass to the end, one pass alone, and every
    position at PARALLEL_THRESHOLD.
    """
    prompts = [lab.pipeline.form.ids(item.prompt) for item in items]
    plain = replace(lab.base, commit="quota", total_steps=lab.base.canvas, stop="complete")

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
        (reading,) = edge.scorer.score([Span(full.prompt_ids, full.answer)])
        others = [token != int(own) for token, own in zip(full.answer, reading.greedy, strict=False)]
        yield {
            "id": item.id,
            "kind": item.benchmark,
            "tokens": len(full.answer),
            "full": float(is_right(item, answer)),
            "alone": float(is_right(item, alone)),
            "first": {"right": float(is_right(item, early)), "f1": word_f1(early, answer)},
            "disagrees": sum(others) / len(others) if others else None,
            "parallel": {
                "right": float(is_right(item, decode(parallel.answer))),
                "tokens": len(parallel.answer),
                "steps": parallel.steps,
            },
        }


def figures(records: Sequence[Record]) -> list[Criterion]:
    """Every figure of the acceptance, from the records of all items."""

    def of(values: Sequence[float]) -> Summary | None:
        return summary(values) if values else None

    found = []
    for kind in dict.fromkeys(record["kind"] for record in records):
        own = [record["full"] for record in records if record["kind"] == kind]
        found.append(Criterion(f"full run right, {kind}", 0.6 if kind in HARDER else 0.8, math.inf, of(own)))
    long = [record for record in records if record["tokens"] >= LONG]
    paces = [r["parallel"]["tokens"] / r["parallel"]["steps"] for r in long]
    disagreements = [record["disagrees"] for record in records if record["disagrees"] is not None]
    return [
        *found,
        Criterion("edge alone right", 0, 0.25, of([record["alone"] for record in records])),
        Criterion(f"first pass F1, {LONG} tokens on", 0, 0.8, of([r["first"]["f1"] for r in long])),
        Criterion(f"first pass right, {LONG} tokens on", 0, 0.4, of([r["first"]["right"] for r in long])),
        Criterion("edge disagrees, share of tokens", 0.25, 0.4, of(disagreements)),
        Criterion(f"tokens a pass at {PARALLEL_THRESHOLD}, {LONG} tokens on", 1.3, 4, of(paces)),
    ]


def hardness_table(found: Sequence[Criterion], items: int) -> Table:
    table = Table(title=f"{items} held-out questions")
    for column in ("figure", "wanted", "found [95%]", "n", ""):
        table.add_column(column)
    for figure in found:
        value = figure.found
        shown = f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]" if value else "no such answer"
        table.add_row(
            figure.name,
            figure.wanted,
            shown,
            str(value.n if value else 0),
            "reached" if figure.reached else "not reached",
        )
    return table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.hardness",
        description="How hard held-out questions are for a pair in few steps: the testbed's acceptance.",
        epilog="example: python -m lab.experiments.hardness --model runs/testbed/testbed-dream "
        "--edge runs/testbed/testbed-qwen -o results/hardness",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="resumable")
    parser.add_argument("--model", required=True, help="diffusion checkpoint: a folder or `tiny`")
    parser.add_argument("--edge", required=True, help="edge model: a bundle, or a checkpoint to convert")
    add_questions(parser, 140, data="testbed")
    parser.add_argument("--threads", type=int, help="of the edge model")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    args = parser.parse_args(argv)
    return run_command(
        "hardness",
        lambda: _run(args),
        interrupted=f"interrupted: run the same command again to continue from {args.output}",
    )


def _run(args: argparse.Namespace) -> int:
    items = questions(args)
    wanted = Wanted(args.model, [args.edge], None, False, None, None, args.seed, "cpu", args.threads)
    lab = open_lab(wanted, args.output / "bundles")
    settings = {"data": " ".join(args.data), "seed": args.seed, "weights": fingerprint(lab, wanted)}
    store = Store(args.output, settings)
    done = store.records(PHASE)
    left = [item for item in items if item.id not in done]
    groups = [left[begin : begin + BATCH] for begin in range(0, len(left), BATCH)]
    work = (record for group in groups for record in measure_group(lab, group))
    for record in track(work, "questions", len(left), console=Console(stderr=True)):
        store.add(PHASE, record)
    chosen = {item.id for item in items}
    records = [record for name, record in store.records(PHASE).items() if name in chosen]
    found = figures(records)
    report = {"questions": len(records), "figures": [figure.to_json() for figure in found]}
    store.write("hardness.json", json.dumps(report, indent=1) + "\n")
    if args.json:
        print(json.dumps(report))
    else:
        Console(width=None if sys.stdout.isatty() else 110).print(hardness_table(found, len(records)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
