"""The release command of the testbed, on that of `lab.pairs.ship`.

Responsible for what of a run ships, and for the questions shown as examples. Not responsible for the release
itself or for the model card (see `model_card`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from cloud_anchor.model.examples import EXAMPLES
from cloud_anchor.shipped import PAIRS
from common.cli import run_command
from edge_runtime.system import Processor
from lab.pairs.ship import Release, ship
from lab.pairs.testbed import library
from lab.pairs.testbed.kinds import KINDS
from lab.pairs.testbed.model_card import CardInput, Trained, write_card
from lab.pairs.testbed.questions import held_out_questions
from lab.pairs.testbed.recipe import CAUSAL_NAME, CONFIGURATIONS, TESTBED_RECIPES

EDGE = PAIRS["testbed"].bundle.name
PROMPTS = 14
"""Held-out questions on which the bundle's variants are verified, two of each kind."""

RELEASE = Release(
    PAIRS["testbed"],
    (PAIRS["testbed"].model, CAUSAL_NAME, EDGE),
    EDGE,
    CONFIGURATIONS[EDGE]["max_position_embeddings"],
    lambda: [problem.prompt for problem in held_out_questions(library.load(), PROMPTS)],
    "python -m lab.pairs.testbed.train",
    rounded=(CAUSAL_NAME,),
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.pairs.testbed.ship",
        description="Make a finished training run the shipped testbed, with its model card. Needs the extra "
        "testbed and WordNet 3.0. Run it again with --hardness for the table in the card.",
        epilog="example: python -m lab.pairs.testbed.ship runs/testbed --hardness hardness/hardness.json",
    )
    parser.add_argument("run", type=Path, help="folder of the training run")
    parser.add_argument(
        "--hardness", type=Path, metavar="FILE", help="hardness.json of lab.experiments.hardness"
    )
    parser.add_argument("--machine", metavar="TEXT", help="on which it was trained (default: this one)")
    parser.add_argument("--note", metavar="TEXT", help="how the run deviates from its recipe, for the card")
    args = parser.parse_args(argv)
    return run_command("ship", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    # A wrong file or an unfinished run is told before minutes of conversion.
    trained = [Trained.read(args.run, name) for name in TESTBED_RECIPES]
    machine = args.machine or f"{os.cpu_count()} cores, {Processor.detect().name}"
    card = CardInput.read(trained, args.hardness, machine, args.note)
    known = library.load()
    total = ship(args.run, RELEASE)
    pair = RELEASE.pair
    examples = [problem.prompt for problem in held_out_questions(known, len(KINDS))]
    text = json.dumps(examples, indent=1, ensure_ascii=False) + "\n"
    (pair.checkpoint / EXAMPLES).write_text(text, encoding="utf-8")
    write_card(card, pair.weights)
    print(f"shipped to {pair.weights}; weights of all pairs: {total / 1e6:.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
