"""The training command of the testbed, on the loop of `lab.pairs.train`.

Responsible for putting together sources, tokenizer, models and evaluations. Not responsible for any of them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from common.cli import run_command
from lab.pairs.testbed import initial, library, probe, recipe
from lab.pairs.testbed.questions import held_out_questions
from lab.pairs.train import Project, Trainer, interrupted, parse, parser_of, plot
from lab.pairs.train import run as train_project

QUESTIONS = 42
"""Held-out questions of the evaluation on the way, six of each kind."""


def project() -> Project:
    """The testbed's project; raises SourceMissingError."""
    known = library.load()
    questions = held_out_questions(known, QUESTIONS)

    def watch(trainer: Trainer, tokenizer_folder: Path) -> None:
        if trainer.step % probe.STEPS == 0:
            tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
            evaluations = trainer.log.with_suffix(".evaluations.jsonl")
            probe.record(trainer, tokenizer, questions, evaluations)
            plot([trainer.log], trainer.log.with_suffix(".png"))

    return Project(
        recipe.TESTBED_RECIPES,
        recipe.CONFIGURATIONS,
        recipe.curriculum(known),
        partial(recipe.tokenizer, known),
        watch,
        initial.set_weights,
    )


def main(argv: list[str] | None = None) -> int:
    parser = parser_of(
        "python -m lab.pairs.testbed.train",
        "Train the testbed's models from scratch: testbed-dream, with testbed-causal on the way, and "
        "testbed-qwen. Resumes from the output folder. Needs the extra testbed and WordNet 3.0.",
        Path("runs/testbed"),
        recipe.TESTBED_RECIPES,
    )
    args = parse(parser, argv)
    return run_command("train", lambda: _run(args), interrupted=interrupted(args))


def _run(args: Namespace) -> int:
    return train_project(args, project())


if __name__ == "__main__":
    sys.exit(main())
