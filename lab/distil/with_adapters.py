"""`python -m lab distil MODEL --lora RANK`: any model of the Dream family, taught by adapters.

Responsible for what such a run consists of: prompts, the model's own answers, training, the curve on the way,
and the merged checkpoint. Its folder has answers.jsonl, curve.jsonl, plan.json with the options that the
answers and the adapters depend on, and of a model NAME the adapters NAME.pt, the log NAME.jsonl and the
checkpoint NAME/. Not responsible for the parts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, read_json
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.prompt_form import checkpoint_form
from cloud_anchor.pipeline import Pipeline
from common.files import differing_settings
from lab.distil.adapter_run import AdapterRun
from lab.distil.adapters import check_source, merge
from lab.distil.answers import write
from lab.distil.canvases import Canvases, FinishedRow
from lab.distil.curve import watch_point
from lab.distil.loss import open_edge
from lab.distil.options import FORMAT, DistilOptions
from lab.pairs.card import CURVE
from lab.pairs.pair import TrainingRecipe
from lab.pairs.problem import Difficulty, Problem
from lab.pairs.trainer import train
from lab.questions.items import Item, item_pool
from lab.questions.judge import can_judge, is_right

ANSWERS = "answers.jsonl"
RATE = 2e-5
"""Peak learning rate where none is given: dParallel's, for adapters of the same scale."""
TIMES = 6.0
"""How often each answer is shown where no number of steps is given: dParallel's 3 epochs of 2 maskings."""


def distil(model: str, options: DistilOptions) -> int:
    """Runs to the last step, or continues an interrupted run; raises RequestError and CheckpointError."""
    assert options.lora is not None
    if options.threads:
        torch.set_num_threads(options.threads)
    folder, out = find_checkpoint(model), options.output
    name = Path(model).resolve().name
    if (out / name).resolve() == folder.resolve():
        raise RequestError(f"-o {out}: expected another folder than the model's own, which is {folder}")
    held, asked = questions(options)
    pipeline = Pipeline.open(model, device=options.device, dtype=FORMAT)
    student = pipeline.model
    if not isinstance(student, DreamModel):
        raise RequestError(
            f"{model}: expected a model with full attention, such as Dream, found another kind"
        )
    check_source(folder, student.family.rename)
    canvas = options.canvas or pipeline.plan().canvas
    student.plan = (canvas, canvas)  # of the curve
    _check_folder(out, {"model": model, "canvas": canvas} | {n: getattr(options, n) for n in _PLANNED})
    edge = _edge(options, pipeline)
    rows = finished_rows(pipeline, asked, out / ANSWERS, canvas, options.batch)
    canvases = Canvases(rows, canvas, _pad(folder, student), tokens=options.tokens, seed=options.seed)
    run = AdapterRun(
        student,
        canvases,
        TrainingRecipe(
            name,
            steps=options.steps or canvases.steps(TIMES),
            causal_steps=0,
            knows=True,
            masked_tokens=options.tokens,
            adam_rate=RATE if options.rate is None else options.rate,
            diffusion=True,
        ),
        out,
        rank=options.lora,
        seed=options.seed,
        certainty=options.certainty,
        pass_tokens=options.pass_tokens,
        edge=edge,
    )

    def watch() -> None:
        if run.step % options.every == 0 or run.step == run.recipe.steps:
            watch_point(out / CURVE, run.step, pipeline, held, options.commits)

    run.resume()
    if not run.step:
        watch()
    train(run, watch=watch)
    commit = options.stated_commit
    stated = {} if commit is None else {"commit": commit}
    merge(student.net, folder, out / name, student.family.rename, share=1 - options.keep, stated=stated)
    print(f"step {run.step} of {run.recipe.steps}, written to {out / name}", file=sys.stderr)
    return 0


def questions(options: DistilOptions) -> tuple[list[Item], list[Item]]:
    """Items of the sources in turn, no prompt twice: those of the curve, and at most `answers` others.

    Raises RequestError where the sources have none for both.
    """
    most = options.watched + options.answers
    pools = [item_pool(source, most, options.seed) for source in options.data]
    turns = (item for turn in zip_longest(*pools) for item in turn if item is not None)
    found = list({item.prompt: item for item in turns}.values())[:most]
    if len(found) <= options.watched:
        raise RequestError(
            f"--data {' '.join(options.data)}: expected more than the {options.watched} prompts of the curve "
            f"(--watched), found {len(found)}"
        )
    return found[: options.watched], found[options.watched :]


def finished_rows(
    pipeline: Pipeline, asked: Sequence[Item], file: Path, canvas: int, batch: int
) -> list[FinishedRow]:
    """The model's own answers that are taught: not cut by the canvas, and right where that can be judged.

    Those that the file does not have are written first. Raises RequestError where there are none.
    """
    items, ids = {item.prompt: item for item in asked}, pipeline.model_form.ids

    def right(problem: Problem, text: str) -> bool:
        item = items[problem.prompt]
        return is_right(item, text) if can_judge(item) else bool(text.strip())

    problems = [_problem(item) for item in asked]
    answers = write(pipeline, problems, right, file, canvas=canvas, batch=batch)
    own = {each.problem.prompt: each for each in answers if each.right}
    rows = [
        FinishedRow(tuple(ids(prompt)), own[prompt].ids, own[prompt].passes, end)
        for prompt in items
        if prompt in own and (end := own[prompt].end) is not None
    ]
    if not rows:
        raise RequestError(
            f"{file}: expected answers that are right and end within the canvas of {canvas}, found none "
            f"among {len(answers)}. Give a longer --canvas, or prompts that the model can answer."
        )
    return rows


def _problem(item: Item) -> Problem:
    """An item as the question of an own answer. What it is judged by stays with the item."""
    return Problem(item.benchmark, cast(Difficulty, item.difficulty), item.prompt, "", (), item.id)


_PLANNED = ("data", "lora", "watched", "tokens", "seed")


def _check_folder(out: Path, plan: dict[str, Any]) -> None:
    """Raises RequestError where a folder holds a run of another plan."""
    out.mkdir(parents=True, exist_ok=True)
    if differs := differing_settings(out / "plan.json", plan):
        raise RequestError(
            f"{out}: holds a run with another {', '.join(differs)}. Use the same options to go on, or "
            "another folder."
        )


def _pad(folder: Path, student: DreamModel) -> int:
    """The end marker that fills a canvas behind the answer."""
    stated = read_json(folder / "config.json").get("pad_token_id")
    return stated if isinstance(stated, int) else min(student.eos_ids)


def _edge(options: DistilOptions, pipeline: Pipeline) -> Any:
    """The edge model that weighs tokens; raises RequestError where its vocabulary is another."""
    if options.edge is None:
        return None
    theirs = checkpoint_form(find_checkpoint(options.edge)).contract
    if not theirs.same_vocabulary(pipeline.model_form.contract):
        raise RequestError(
            f"--edge {options.edge}: expected a model of the vocabulary of the one that is taught"
        )
    return open_edge(options.edge, options.device)
