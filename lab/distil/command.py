"""`python -m lab distil MODEL -o FOLDER`: a pair's masked model taught to answer in few passes.

Responsible for the command and for what a run consists of: questions, the model's own answers, training, and
the curve on the way. Its folder has KIND.answers.jsonl, curve.jsonl, and as in `lab.pairs.train` NAME.pt, the
log NAME.jsonl and the checkpoint NAME/. Not responsible for the parts.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, read_json
from cloud_anchor.pipeline import Pipeline
from common.cli import CommandParser, option, taken
from common.progress import Bars
from edge_runtime.commands import positive
from lab.distil.answers import Targets, questions, write
from lab.distil.curve import longest, watch_point
from lab.distil.trainer import SelfDistillation
from lab.options import world_of
from lab.pairs.batches import Curriculum
from lab.pairs.card import CURVE
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.train import RECIPES
from lab.pairs.trainer import train

FORMAT = "bfloat16"
"""Of the model that writes the answers and of the curve's."""
PER_SUBJECT = 4
"""Most questions about one subject that are answered."""
BATCH = 16
"""Answers written at a time."""
JUDGES = 8
"""Further questions, for each that is answered, by which answers are judged."""
LENGTHS = {64: 0.15, 96: 0.1, 128: 0.45, 192: 0.15, 256: 0.15}
"""Rows of a batch by their length: most for long answers, the longest for their canvas."""
SEED = "own answers"
"""Of the questions that are answered, which are the same in every run."""
RATE = 0.006
"""Of the matrices (Muon); of all else (AdamW) it is a fifth."""
DRILLS = 0.08
"""Share of drills: what they teach is not to be forgotten."""


@dataclass(frozen=True)
class DistilOptions:
    """Raises RequestError for values that there are not."""

    output: Path = option(Path("runs/distil"), "folder of the run", flags=("-o", "--output"))
    steps: int = option(1000, "training steps", positive)
    answers: int = option(500, "most questions of a kind that the model answers itself", positive)
    canvas: int = option(128, "of its own answers", positive)
    hold: float = option(0.5, "share of the other rows' target that is what the model said before")
    more: tuple[str, ...] = option(
        (), "kinds of which there are more rows, such as comparison=2", metavar="KIND=N"
    )
    tokens: int = option(4096, "of a batch", positive)
    share: float = option(0.45, "of the rows with long answers")
    every: int = option(100, "training steps between two points of the curve", positive)
    watched: int = option(
        12, "held-out questions with long answers of which each point is the mean", positive
    )
    seed: int = option(0, "of the questions and the batches")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cuda, cpu")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int)
    no_compile: bool = option(False, "run without torch.compile")

    def __post_init__(self) -> None:
        for name in ("share", "hold"):
            if not 0 <= getattr(self, name) <= 1:
                raise RequestError(f"--{name}: expected 0 to 1, found {getattr(self, name)}")
        factors(self.more)


def factors(texts: Sequence[str]) -> dict[str, float]:
    """The factors of kinds, from "comparison=2"; raises RequestError."""
    found = {}
    for text in texts:
        kind, _, factor = text.partition("=")
        if not kind or not re.fullmatch(r"\d+(\.\d+)?", factor):
            raise RequestError(f"--more: expected a kind and a factor, such as comparison=2, found {text}")
        found[kind] = float(factor)
    return found


EPILOG = """examples:
  python -m lab distil testbed -o runs/distil
  python -m lab run passes --model runs/distil/testbed-dream --edge testbed-qwen \\
      --data testbed:profile -o passes/"""


def main(arguments: Sequence[str]) -> int:
    says = "Teach a pair's diffusion model to answer in few passes, from its own finished answers.\n"
    says += "An interrupted run resumes from its folder."
    parser = CommandParser(prog="python -m lab distil", description=says, epilog=EPILOG)
    parser.add_argument("model", metavar="MODEL", help="testbed, or the folder of such a model")
    parser.declare(DistilOptions)
    found = vars(parser.parse_args(arguments))
    return distil(found["model"], taken(DistilOptions, found))


def distil(model: str, options: DistilOptions) -> int:
    """Runs to the last step, or continues an interrupted run; raises RequestError and CheckpointError."""
    if options.threads:
        torch.set_num_threads(options.threads)
    folder, out = find_checkpoint(model), options.output
    world = world_of(model)
    if world not in RECIPES:
        raise RequestError(f"{model}: expected a model of {', '.join(RECIPES)}, found one of {world}")
    pair = RECIPES[world]()
    name = pair.student
    _check_shape(pair, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text).ids
        return ids

    targets = _targets(model, pair, options)
    trainer = SelfDistillation(
        replace(pair, curriculum=curriculum(pair, targets, options)),
        TrainingRecipe(
            name,
            steps=options.steps,
            causal_steps=0,
            knows=True,
            masked_tokens=options.tokens,
            muon_rate=RATE,
            adam_rate=RATE / 5,
            ema=0.99,
            diffusion=True,
        ),
        tokenizer,
        out,
        seed=options.seed,
        device=options.device,
        compiled=not options.no_compile,
        orders=targets.orders(encode),
        before=folder,
        hold=options.hold,
    )
    watched = longest(pair, options.watched, encode)

    def watch() -> None:
        if trainer.step % options.every and trainer.step < trainer.recipe.steps:
            return
        trainer.export(folder, out / name)
        now = Pipeline.open(str(out / name), device=options.device, dtype=FORMAT)
        watch_point(out / CURVE, trainer.step, now, watched)

    trainer.resume()
    if not trainer.step:
        watch()
    train(trainer, progress=Bars(), watch=watch)
    trainer.export(folder, out / name)
    print(f"step {trainer.step} of {trainer.recipe.steps}, written to {out / name}", file=sys.stderr)
    return 0


def _check_shape(pair: Pair, folder: Path) -> None:
    """Raises RequestError where a checkpoint has not the shape of the pair's masked model."""
    settings = read_json(folder / "config.json")
    for key, wanted in pair.shapes[pair.student].items():
        if settings.get(key) != wanted:
            raise RequestError(
                f"{folder / 'config.json'}: expected the {key} of {pair.student}, {wanted}, found "
                f"{settings.get(key)}. Only models of the shape of a pair's own can be taught."
            )


def _targets(model: str, pair: Pair, options: DistilOptions) -> Targets:
    """What questions with long answers are taught, from the model's own answers, which are written first."""
    pipeline = Pipeline.open(model, device=options.device, dtype=FORMAT)
    draw, rng = pair.curriculum.families[pair.long], random.Random(SEED)
    asked = questions(draw, options.answers, PER_SUBJECT, rng)
    file = options.output / f"{draw(rng, True).family}.answers.jsonl"
    answers = write(pipeline, asked, pair.is_right, file, canvas=options.canvas, batch=BATCH)
    others = questions(draw, JUDGES * options.answers, JUDGES * PER_SUBJECT, rng)
    return Targets(answers, others, pair.is_right)


def curriculum(pair: Pair, targets: Targets, options: DistilOptions) -> Curriculum:
    """The pair's last mix, in which long answers have their share and are taught the targets."""
    mix, families = pair.curriculum.late or pair.curriculum.masked, dict(pair.curriculum.families)
    families[pair.long] = partial(targets.taught, families[pair.long])
    more = factors(options.more)
    weights = {kind: share * more.get(kind.split()[0], 1.0) for kind, share in mix.families.items()}
    others = sum(weight for kind, weight in weights.items() if kind != pair.long)
    shares = {kind: (1 - options.share) * weight / others for kind, weight in weights.items()}
    shares[pair.long] = options.share
    lengths = {size: share for size, share in LENGTHS.items() if size <= max(mix.lengths)}
    mix = replace(mix, lengths=lengths, families=shares, drills=DRILLS)
    return Curriculum({kind: families[kind] for kind in shares}, causal=mix, masked=mix)
