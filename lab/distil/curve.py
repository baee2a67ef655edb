"""The curve of a distillation: how many tokens a pass settles and how right early answers are, by step.

Responsible for the held-out questions with long answers, for one point of the curve and for its file. Not
responsible for the experiments, which ask more questions (see `lab.experiments.passes`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from lab.experiments.passes import runs_at
from lab.pairs.pair import Pair
from lab.pairs.problem import Problem
from lab.questions.items import Item
from lab.questions.judge import graded

FRACTIONS = (0.05, 0.1, 0.25)
"""Shares of the canvas's steps after which an answer is read."""
POOL = 7
"""Held-out questions looked through for each one that is asked."""


def longest(pair: Pair, count: int, tokens: Callable[[str], int]) -> list[Problem]:
    """The `count` of the pair's first held-out questions whose references are longest."""
    pool = pair.held_out(POOL * count)
    return sorted(pool, key=lambda problem: -tokens(problem.answer))[:count]


def point(pipeline: Pipeline, problems: list[Problem], world: str, commit: float) -> dict[str, float]:
    """Means over the questions; tokens commit from the probability `commit` on.

    tokens_a_pass: of finished answers. graded: the share that these tell of what was asked. graded N%, f1 N%:
    of the draft after N% of the steps, F1 against the same run's finished answer. world: whose questions they
    are, for grading.
    """
    plan = pipeline.plan()
    marks = {fraction: steps_for(fraction, plan.total_steps) for fraction in FRACTIONS}
    prompts = [pipeline.model_form.ids(problem.prompt) for problem in problems]
    runs = runs_at(pipeline, prompts, f"{commit}", [*marks.values(), plan.total_steps])
    decode = pipeline.model_form.tokenizer.decode
    rows = []
    for problem, run in zip(problems, runs, strict=True):
        item = Item("", problem.family, problem.difficulty, problem.prompt, world, asdict(problem))
        whole = run[plan.total_steps]
        text = decode(whole.answer)
        row = {"tokens_a_pass": len(whole.answer) / whole.steps, "graded": graded(item, text)}
        for fraction, mark in marks.items():
            draft = decode(run[mark].predicted_answer)
            row |= {f"graded {fraction:.0%}": graded(item, draft), f"f1 {fraction:.0%}": word_f1(draft, text)}
        rows.append(row)
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def add(file: Path, step: int, points: Mapping[float, Mapping[str, float]]) -> None:
    """Append points by their `commit` to a file of JSON lines, in place of those from this step on."""
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] < step]
    for commit, found in points.items():
        row = {"step": step, "commit": commit} | {name: round(value, 3) for name, value in found.items()}
        kept.append(json.dumps(row))
    file.write_text("".join(f"{line}\n" for line in kept))
