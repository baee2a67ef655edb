"""`python -m lab distil MODEL -o FOLDER`: a masked model taught to answer in few passes.

Responsible for the command and for what a run of a pair's own model consists of: questions, the model's own
answers, training, and the curve on the way. Its folder has answers.jsonl, curve.jsonl, and as in
`lab.pairs.train` NAME.pt, the log NAME.jsonl and the checkpoint NAME/. Not responsible for the parts, or for
models that are taught by adapters (see `with_adapters`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, read_json
from cloud_anchor.pipeline import Pipeline
from common.cli import CommandParser
from lab.distil.answers import Targets, questions, write
from lab.distil.curve import longest, watch_point
from lab.distil.keep import keep
from lab.distil.loss import open_edge
from lab.distil.options import FORMAT, SUBJECT, DistilOptions, factors
from lab.distil.trainer import SelfDistillation
from lab.options import add_options, given, world_of
from lab.pairs.batches import Curriculum, Mix
from lab.pairs.card import CURVE
from lab.pairs.pair import Pair, TrainingRecipe
from lab.pairs.train import RECIPES
from lab.pairs.trainer import train

LONG = 60
"""Tokens from which an answer counts as long, as in the experiments by length."""
JUDGES = 8
"""Further questions, for each that is answered, by which answers are judged."""
LENGTHS = {64: 0.15, 96: 0.1, 128: 0.45, 192: 0.15, 256: 0.15}
"""Rows of a batch by their length: most for long answers, the longest for their canvas."""
SEED = "own answers"
"""Of the questions that are answered, which are the same in every run."""
STEPS, RATE, CANVAS = 1000, 0.006, 128
"""Where they are not given. The rate is that of the matrices (Muon); of all else (AdamW) it is a fifth."""
DRILLS = 0.08
"""Share of drills: what they teach is not to be forgotten."""


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        prog="python -m lab distil",
        description="Teach a diffusion model to answer in few passes, from its own finished answers.\n"
        "An interrupted run resumes from its folder. With --lora it is any model of the Dream family.",
        epilog="examples:\n"
        "  python -m lab distil testbed -o runs/distil\n"
        "  python -m lab distil Dream-org/Dream-v0-Instruct-7B --data gsm8k=train.jsonl --lora 32 \\\n"
        "      -o runs/dream-distil\n"
        "  python -m lab run passes --model runs/distil/testbed-dream --edge testbed-qwen \\\n"
        "      --data testbed:profile -o passes/",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="tiny, testbed, or the folder of such a model; with --lora also a hub name",
    )
    add_options(parser, DistilOptions)
    found = vars(parser.parse_args(arguments))
    options = DistilOptions(**given(DistilOptions, found))
    if options.lora is None:
        return distil(found["model"], options)
    from lab.distil import with_adapters  # its package is an extra of its own

    return with_adapters.distil(found["model"], options)


def distil(model: str, options: DistilOptions) -> int:
    """Runs to the last step, or continues an interrupted run; raises RequestError and CheckpointError."""
    if options.threads:
        torch.set_num_threads(options.threads)
    folder, out = find_checkpoint(model), options.output
    pair = RECIPES[options.pair or world_of(model)]()
    name = _student(pair, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    pipeline = Pipeline.open(model, device=options.device, dtype=FORMAT)
    long = _long_kinds(pair, tokens)
    rng = random.Random(SEED)
    answers, others = [], []
    for kind in long:
        draw = pair.curriculum.families[kind]
        asked = questions(draw, options.answers, options.per_subject, rng)
        file = out / f"{draw(rng, True).family}.answers.jsonl"
        answers += write(
            pipeline, asked, pair.is_right, file, canvas=options.canvas or CANVAS, batch=options.batch
        )
        others += questions(draw, JUDGES * options.answers, JUDGES * options.per_subject, rng)
    targets = Targets(answers, others, pair.is_right)
    rate = RATE if options.rate is None else options.rate
    trainer = SelfDistillation(
        replace(pair, curriculum=curriculum(pair, long, targets, options)),
        TrainingRecipe(
            name,
            steps=options.steps or STEPS,
            causal_steps=0,
            knows=True,
            masked_tokens=options.tokens,
            muon_rate=rate,
            adam_rate=rate / 5,
            ema=0.99,
            diffusion=True,
        ),
        tokenizer,
        out,
        seed=options.seed,
        device=options.device,
        compiled=not options.no_compile,
        orders=targets.orders(lambda text: tokenizer.encode(text).ids),
        certainty=options.certainty,
        commit=options.stated_commit,
        edge=open_edge(options.edge, options.device),
        fill=open_edge(options.fill, options.device),
        before=folder if options.hold else None,
        hold=options.hold,
    )
    watched = longest(pair, options.watched, tokens)

    def export() -> None:
        trainer.export(folder, out / name)
        if options.keep:
            keep(folder, out / name, options.keep)

    def watch() -> None:
        if trainer.step % options.every and trainer.step < trainer.recipe.steps:
            return
        export()
        now = Pipeline.open(str(out / name), device=options.device, dtype=FORMAT)
        watch_point(out / CURVE, trainer.step, now, watched, options.commits)

    if trainer.checkpoint.exists():
        trainer.resume()
    else:
        trainer.log.unlink(missing_ok=True)
        trainer.start_from(folder, 0)
        watch()
    train(trainer, watch=watch)
    export()
    print(f"step {trainer.step} of {trainer.recipe.steps}, written to {out / name}", file=sys.stderr)
    return 0


def _student(pair: Pair, folder: Path) -> str:
    """The name of the pair's masked model, whose shape the checkpoint must have; raises RequestError."""
    name = next(name for name, recipe in pair.recipes.items() if recipe.diffusion)
    settings = read_json(folder / "config.json")
    for key, wanted in pair.shapes[name].items():
        if settings.get(key) != wanted:
            raise RequestError(
                f"{folder / 'config.json'}: expected the {key} of {name}, {wanted}, found "
                f"{settings.get(key)}. Only models of the shape of a pair's own can be taught whole: give "
                "--lora 32 and --data for adapters."
            )
    return name


def _mix(pair: Pair) -> Mix:
    return pair.curriculum.late or pair.curriculum.masked


def _long_kinds(pair: Pair, tokens: Callable[[str], int]) -> list[str]:
    """The kinds of questions whose references are long, on average; the longest one where none is."""
    rng = random.Random(SEED)
    sizes = {
        kind: sum(tokens(pair.curriculum.families[kind](rng, True).answer) for _ in range(50)) / 50
        for kind in _mix(pair).families
    }
    return [kind for kind in sizes if sizes[kind] >= LONG] or [max(sizes, key=lambda kind: sizes[kind])]


def curriculum(pair: Pair, long: Sequence[str], targets: Targets, options: DistilOptions) -> Curriculum:
    """The pair's last mix, in which kinds with long answers have their share and are taught the targets."""
    mix, families = _mix(pair), dict(pair.curriculum.families)
    taught = targets.of_subject if options.one_answer == SUBJECT else targets.of_question
    families |= {kind: partial(taught, families[kind]) for kind in long}
    more = factors(options.more)
    weights = {kind: share * more.get(kind.split()[0], 1.0) for kind, share in mix.families.items()}
    others = sum(weight for kind, weight in weights.items() if kind not in long)
    shares = {
        kind: options.share / len(long) if kind in long else (1 - options.share) * weight / others
        for kind, weight in weights.items()
    }
    lengths = {size: share for size, share in LENGTHS.items() if size <= max(mix.lengths)}
    mix = replace(mix, lengths=lengths, families=shares, drills=DRILLS)
    return Curriculum({kind: families[kind] for kind in shares}, causal=mix, masked=mix)
