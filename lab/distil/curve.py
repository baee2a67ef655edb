"""The curve of a distillation: how many tokens a pass settles and how right early answers are, by step.

Responsible for the held-out questions with long answers, for one point of the curve and for its file. Not
responsible for the experiments, which ask more questions (see `lab.experiments.passes`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from lab.experiments.passes import runs_at
from lab.pairs.pair import Pair
from lab.questions.items import Item
from lab.questions.judge import can_judge, graded

FRACTIONS = (0.05, 0.1, 0.25)
"""Shares of the canvas's steps after which an answer is read."""
POOL = 7
"""Held-out questions looked through for each one that is asked."""


def longest(pair: Pair, count: int, tokens: Callable[[str], int]) -> list[Item]:
    """The `count` of the pair's first held-out questions whose references are longest."""
    pool = sorted(pair.held_out(POOL * count), key=lambda problem: -tokens(problem.answer))[:count]
    return [
        Item("", problem.family, problem.difficulty, problem.prompt, pair.name, asdict(problem))
        for problem in pool
    ]


def watch_point(
    file: Path, step: int, pipeline: Pipeline, items: Sequence[Item], commits: Sequence[float]
) -> None:
    """Measures a point for each probability of `commits`, adds them to the curve's file and says them."""
    points = {commit: point(pipeline, items, commit) for commit in commits}
    add(file, step, points)
    for commit, found in points.items():
        figures = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        print(f"step {step}, commits from {commit:g}: {figures}", file=sys.stderr)


def point(pipeline: Pipeline, items: Sequence[Item], commit: float) -> dict[str, float]:
    """Means over the questions; tokens commit from the probability `commit` on.

    tokens_a_pass: of finished answers. graded: the share that these tell of what was asked. graded N%, f1 N%:
    of the draft after N% of the steps, F1 against the same run's finished answer. What is graded is the mean
    of the questions that can be.
    """
    plan = pipeline.plan()
    marks = {fraction: steps_for(fraction, plan.total_steps) for fraction in FRACTIONS}
    prompts = [pipeline.model_form.ids(item.prompt) for item in items]
    runs = runs_at(pipeline, prompts, f"{commit}", [*marks.values(), plan.total_steps])
    decode = pipeline.model_form.tokenizer.decode
    found: dict[str, list[float]] = {}
    for item, run in zip(items, runs, strict=True):
        whole = run[plan.total_steps]
        text = decode(whole.answer)
        row = {"tokens_a_pass": len(whole.answer) / whole.steps}
        if can_judge(item):
            row["graded"] = graded(item, text)
        for fraction, mark in marks.items():
            draft = decode(run[mark].predicted_answer)
            if can_judge(item):
                row[f"graded {fraction:.0%}"] = graded(item, draft)
            row[f"f1 {fraction:.0%}"] = word_f1(draft, text)
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def add(file: Path, step: int, points: Mapping[float, Mapping[str, float]]) -> None:
    """Append points by their `commit` to a file of JSON lines, in place of those from this step on."""
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] < step]
    for commit, found in points.items():
        row = {"step": step, "commit": commit} | {name: round(value, 3) for name, value in found.items()}
        kept.append(json.dumps(row))
    file.write_text("".join(f"{line}\n" for line in kept))
