"""Training of a pair from scratch: `python -m lab.pairs.train testbed`.

Responsible for the command. Not responsible for the loop (see `trainer`), for what each pair is trained on
(see their recipes) or for evaluation (see `lab run fill`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pandas import read_json
from tokenizers import Tokenizer

from cloud_anchor.errors import RequestError
from common.cli import CommandParser, option, run_command, taken
from common.progress import Bars
from lab.pairs import tokens
from lab.pairs.pair import Pair
from lab.pairs.testbed import library
from lab.pairs.testbed import recipe as testbed
from lab.pairs.trainer import PairTrainer, plot, train

RECIPES: dict[str, Callable[[], Pair]] = {"testbed": lambda: testbed.pair(library.read())}
"""The pairs that can be trained, taught and shipped; sources may be missing (SourceMissingError)."""


@dataclass(frozen=True)
class TrainOptions:
    output: Path | None = option(None, "folder of the run (runs/PAIR)", flags=("-o", "--output"))
    only: str | None = option(None, "train one model only", metavar="MODEL")
    steps: int | None = option(None, "override the number of steps", kind=int)
    seed: int = option(0, "of the first weights and the batches")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cuda, cpu")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int)
    no_compile: bool = option(False, "run without torch.compile")


def main(argv: list[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.pairs.train",
        description="Train the models of a pair from scratch. An interrupted run resumes from its folder.\n"
        "The testbed needs its extra and WordNet 3.0.",
        epilog="example: python -m lab.pairs.train testbed --only testbed-qwen -o runs/testbed",
    )
    parser.add_argument("pair", choices=list(RECIPES))
    parser.declare(TrainOptions)
    found = vars(parser.parse_args(argv))
    name, options = found["pair"], taken(TrainOptions, found)
    out = options.output or Path("runs") / name
    again = f"interrupted: run the same command again to continue from {out}"
    return run_command("train", lambda: _run(RECIPES[name](), options, out), interrupted=again)


def _run(pair: Pair, options: TrainOptions, out: Path) -> None:
    if options.only and options.only not in pair.recipes:
        raise RequestError(f"--only: expected one of {', '.join(pair.recipes)}, found {options.only}")
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer_folder = out / "tokenizer"
    if not (tokenizer_folder / "tokenizer.json").exists():
        tokens.save(pair.tokenizer(), tokenizer_folder)
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
        trainer.resume()

        def keep_causal(trainer: PairTrainer = trainer) -> None:
            recipe = trainer.recipe
            if recipe.causal_name and trainer.step == recipe.causal_steps:
                trainer.export(tokenizer_folder, out / recipe.causal_name, diffusion=False)

        train(trainer, progress=Bars(), watch=keep_causal)
        trainer.export(tokenizer_folder, out / name)
        print(
            f"{name}: step {trainer.step} of {trainer.recipe.steps}, written to {out / name}", file=sys.stderr
        )
    logs = [log for log in sorted(out.glob("*.jsonl")) if log.stat().st_size]
    plot({log.stem: read_json(log, lines=True) for log in logs}, out / "loss.png")


if __name__ == "__main__":
    sys.exit(main())
