"""Training of a pair from scratch: `python -m lab.pairs.train tiny`, or `testbed`.

Responsible for the command. Not responsible for the loop (see `trainer`), for what each pair is trained on
(see their recipes) or for evaluation (see `lab run fill`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from cloud_anchor.errors import RequestError
from common.cli import CommandParser, option, run_command
from lab.options import add_options, given
from lab.pairs import probe, tokens
from lab.pairs.pair import Pair
from lab.pairs.testbed import library
from lab.pairs.testbed import recipe as testbed
from lab.pairs.tiny import recipe as tiny
from lab.pairs.trainer import PairTrainer, plot, train

RECIPES: dict[str, Callable[[], Pair]] = {
    "tiny": lambda: tiny.PAIR,
    "testbed": lambda: testbed.pair(library.read()),
}
"""The pairs that can be trained and shipped; the testbed's sources may be missing (SourceMissingError)."""


@dataclass(frozen=True)
class TrainOptions:
    output: Path | None = option(None, "folder of the run (runs/PAIR)", Path, flags=("-o", "--output"))
    only: str | None = option(None, "train one model only", metavar="MODEL")
    steps: int | None = option(None, "override the number of steps", kind=int)
    go_on_from: tuple[str, str] | None = option(
        None,
        "start a new run from this checkpoint's weights, as if they were at that step (with --only)",
        nargs=2,
        metavar=("FOLDER", "STEP"),
    )
    seed: int = option(0, "of the first weights and the batches")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cuda, cpu")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int)
    no_compile: bool = option(False, "run without torch.compile")
    export: bool = option(False, "only write the checkpoint folders of a run so far")


def main(argv: list[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.pairs.train",
        description="Train the models of a pair from scratch. An interrupted run resumes from its folder.\n"
        "The testbed needs its extra and WordNet 3.0.",
        epilog="example: python -m lab.pairs.train tiny --only tiny-qwen -o runs/tiny",
    )
    parser.add_argument("pair", choices=list(RECIPES))
    add_options(parser, TrainOptions)
    found = vars(parser.parse_args(argv))
    name, options = found["pair"], TrainOptions(**given(TrainOptions, found))
    out = options.output or Path("runs") / name
    again = f"interrupted: run the same command again to continue from {out}"
    return run_command("train", lambda: _run(RECIPES[name](), options, out), interrupted=again)


def _run(pair: Pair, options: TrainOptions, out: Path) -> None:
    _check(options, pair)
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer_folder = out / "tokenizer"
    if not (tokenizer_folder / "tokenizer.json").exists():
        same = options.go_on_from and Tokenizer.from_file(f"{options.go_on_from[0]}/tokenizer.json")
        tokens.save(same or pair.tokenizer(), tokenizer_folder)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    for name in [options.only] if options.only else pair.recipes:
        recipe = pair.recipes[name]
        trainer = PairTrainer(
            pair,
            replace(recipe, steps=options.steps or recipe.steps),
            tokenizer,
            out,
            seed=options.seed,
            device=options.device,
            compiled=not options.no_compile,
        )
        if options.go_on_from and not trainer.checkpoint.exists():
            folder, step = options.go_on_from
            trainer.log.unlink(missing_ok=True)
            trainer.start_from(Path(folder), int(step))
        else:
            trainer.resume()
        if not options.export:
            train(trainer, watch=partial(_on_the_way, trainer, pair, tokenizer, tokenizer_folder))
        trainer.export(tokenizer_folder, out / name)
        print(
            f"{name}: step {trainer.step} of {trainer.recipe.steps}, written to {out / name}", file=sys.stderr
        )
    logs = [out / f"{name}.jsonl" for name in pair.recipes if (out / f"{name}.jsonl").exists()]
    if logs:
        plot(logs, out / "loss.png")


def _check(options: TrainOptions, pair: Pair) -> None:
    if options.only and options.only not in pair.recipes:
        raise RequestError(f"--only: expected one of {', '.join(pair.recipes)}, found {options.only}")
    if options.go_on_from:
        folder, step = options.go_on_from
        if not (options.only and step.isdigit()):
            raise RequestError("--go-on-from: expected a folder, a step, and --only MODEL")
        if not (Path(folder) / "model.safetensors").is_file():
            raise RequestError(
                f"--go-on-from: expected a folder with model.safetensors, found none in {folder}"
            )


def _on_the_way(trainer: PairTrainer, pair: Pair, tokenizer: Tokenizer, tokenizer_folder: Path) -> None:
    """What is done after a step: the causal model is kept, and the pair's questions are asked."""
    recipe = trainer.recipe
    if recipe.causal_name and trainer.step == recipe.causal_steps:
        trainer.export(tokenizer_folder, trainer.folder / recipe.causal_name, diffusion=False)
    if pair.probed and trainer.step % probe.STEPS == 0:
        probe.record(trainer, tokenizer, pair, trainer.log.with_suffix(".evaluations.jsonl"))
        plot([trainer.log], trainer.log.with_suffix(".png"))


if __name__ == "__main__":
    sys.exit(main())
