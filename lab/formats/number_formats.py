"""Commits of one model in two number formats: `python -m lab.formats.number_formats`.

The same held-out prompts are denoised in float32 and in bfloat16 (or another format), all else being equal,
and what is committed is compared. Responsible for the measurement and its table. Not responsible for the
formats (see `model.memory`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from cloud_anchor.metrics import word_f1
from cloud_anchor.model.checkpoint import find_checkpoint, load_model
from cloud_anchor.model.prompt_form import prompt_form
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import commit_in_parallel, steps_for
from cloud_anchor.sampling.sampler import denoise
from common.cli import run_command
from common.progress import Bars, Progress
from lab.options import add_model, add_questions, questions

WIDE = "float32"
BATCH = 10
PARALLEL = "parallel"
PLANS = (("quota", 0.1), ("quota", 0.25), (PARALLEL, 1.0))
"""Commit rules and shares of the steps: the schedule's quota, and all tokens from 0.9 on until complete."""


@dataclass(frozen=True)
class FormatRow:
    """Agreement with float32 after some steps: shares of the positions committed in either format.

    commits:    the commit rule.
    committed:  by both. tokens: by both, with the same token. steps: and in the same step.
    answers:    share of the prompts whose whole predicted text is the same.
    f1:         mean word F1 of the predicted texts.
    """

    commits: str
    fraction: float
    committed: float
    tokens: float
    steps: float
    answers: float
    f1: float


def compare_formats(
    source: str,
    prompts: Sequence[str],
    dtype: str,
    plans: Sequence[tuple[str, float]] = PLANS,
    progress: Progress | None = None,
) -> list[FormatRow]:
    """One row for each plan, a commit rule and a share of the checkpoint's own steps."""
    report = progress or Bars(passing=True)
    models = [load_model(source, device="cpu", dtype=name) for name in (WIDE, dtype)]
    forms = [prompt_form(model, find_checkpoint(source)) for model in models]
    ids = [forms[0].ids(prompt) for prompt in prompts]
    plan = Pipeline(models[0], forms[0]).plan(prompts)
    rows = []
    for rule, fraction in plans:
        steps = replace(plan, steps=steps_for(fraction, plan.total_steps))
        steps = commit_in_parallel(steps) if rule == PARALLEL else replace(steps, commit="quota")
        batches = 2 * -(-len(ids) // BATCH)
        with report.stage(f"{rule}, {fraction:.0%}", batches * steps.run_steps) as step:
            wide, narrow = (
                denoise(model, ids, steps, BATCH, after_step=partial(step, 1)) for model in models
            )
        either = both = tokens = same = answers = 0
        f1 = 0.0
        for one, other in zip(wide, narrow, strict=True):
            first, second = (
                {at: pair for at, pair in enumerate(zip(run.ids, run.when, strict=True)) if pair[1]}
                for run in (one, other)
            )
            either += len(first.keys() | second.keys())
            shared = first.keys() & second.keys()
            both += len(shared)
            tokens += sum(first[at][0] == second[at][0] for at in shared)
            same += sum(first[at] == second[at] for at in shared)
            texts = [forms[0].tokenizer.decode(run.predicted_answer) for run in (one, other)]
            answers += texts[0] == texts[1]
            f1 += word_f1(texts[0], texts[1])
        either, n = max(1, either), len(ids)
        shares = both / either, tokens / either, same / either, answers / n, f1 / n
        rows.append(FormatRow(rule, fraction, *shares))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.number_formats",
        description="What is committed in bfloat16 and in float32, on held-out questions.",
        epilog="example: python -m lab.formats.number_formats --prompts 100",
    )
    add_model(parser)
    add_questions(parser, 100)
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16 (default), float16")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    return run_command("number_formats", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    prompts = [item.prompt for item in questions(args)]
    rows = compare_formats(args.model, prompts, args.dtype)
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    print("| commits | steps | in both | the same token | in the same step | whole text the same | word F1 |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        cells = (f"{share:.3f}" for share in (row.committed, row.tokens, row.steps, row.answers, row.f1))
        print(f"| {row.commits} | {row.fraction:.0%} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
