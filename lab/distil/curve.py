"""The curve of a distillation: how many tokens a pass settles and how right early answers are, by step.

Responsible for the held-out questions with long answers, for one point of the curve and for its file. Not
responsible for the experiments, which ask more questions (see `lab.experiments.passes`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD, steps_for
from lab.experiments.passes import in_parallel, runs_at
from lab.pairs.pair import Pair
from lab.questions.items import Item
from lab.questions.judge import coverage
from lab.records import read_records

FRACTIONS = (0.05, 0.1, 0.25)
"""Shares of the canvas's steps after which an answer is read."""
POOL = 7
"""Held-out questions looked through for each one that is asked."""


def longest(pair: Pair, count: int, encode: Callable[[str], Sequence[int]]) -> list[Item]:
    """The `count` of the pair's first held-out questions whose references are longest."""
    pool = sorted(pair.held_out(POOL * count), key=lambda problem: -len(encode(problem.answer)))[:count]
    return [
        Item("", problem.family, problem.difficulty, problem.prompt, pair.name, asdict(problem))
        for problem in pool
    ]


def watch_point(file: Path, step: int, pipeline: Pipeline, items: Sequence[Item]) -> None:
    """Measures a point, says it and adds it to the curve's file, in place of those from this step on."""
    found = point(pipeline, items)
    print(f"step {step}: {', '.join(f'{name} {v:.3f}' for name, v in found.items())}", file=sys.stderr)
    kept = [row for row in read_records(file) if row["step"] < step]
    row = {"step": step, "commit": PARALLEL_THRESHOLD} | {name: round(v, 3) for name, v in found.items()}
    file.write_text("".join(f"{json.dumps(each)}\n" for each in [*kept, row]))


def point(pipeline: Pipeline, items: Sequence[Item]) -> dict[str, float]:
    """Means over the questions; tokens commit as usual, in parallel.

    tokens_a_pass: of finished answers. coverage: of what was asked, by these. coverage N%, agreement N%: of
    the draft after N% of the steps, agreement with the same run's finished answer.
    """
    plan = pipeline.plan()
    marks = {fraction: steps_for(fraction, plan.total_steps) for fraction in FRACTIONS}
    prompts = [pipeline.model_form.ids(item.prompt) for item in items]
    runs = runs_at(pipeline, prompts, in_parallel(plan), [*marks.values(), plan.total_steps])
    decode = pipeline.model_form.tokenizer.decode
    rows = []
    for item, run in zip(items, runs, strict=True):
        whole = run[plan.total_steps]
        text = decode(whole.answer)
        row = {"tokens_a_pass": len(whole.answer) / whole.steps, "coverage": coverage(item, text)}
        for fraction, mark in marks.items():
            draft = decode(run[mark].predicted_answer)
            row[f"coverage {fraction:.0%}"] = coverage(item, draft)
            row[f"agreement {fraction:.0%}"] = word_f1(draft, text)
        rows.append(row)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
