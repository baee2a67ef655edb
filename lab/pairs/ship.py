"""Release of a training run as the shipped pair: `python -m lab.pairs.ship testbed`.

Responsible for copying the checkpoints, for converting the edge model to the bundle that edge_runtime ships,
and for questions as examples where there are none. Everything is made and checked beside the shipped files
first: an unfinished run, or a bundle that fails its verification, replaces nothing. Not responsible for the
conversion (see `convert`) or the card's text (see `card`).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cloud_anchor.anchor import main as anchor
from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import EXAMPLES
from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS, SUBJECTS, TAUGHT, ShippedPair, world_of
from common.cli import option, run_options
from convert.conversion import convert
from edge_runtime.fill import SAMPLE
from lab.pairs import card
from lab.pairs.pair import Pair
from lab.pairs.row_weights import round_checkpoint
from lab.pairs.train import RECIPES

SAMPLE_PROMPT = "Tell me about Peru."
"""Of the payload that ships with the device's wheel."""
VARIANTS = ("fp32", "int8", "int4")


def ship(run: Path, pair: Pair, shipped: Mapping[str, ShippedPair] = PAIRS) -> None:
    """Replace a pair's weights and bundle by those of a run.

    Raises ConvertError, or CheckpointError without a run.
    """
    place = shipped[pair.name]
    for name in pair.checkpoints:
        if not (run / name / "model.safetensors").is_file():
            raise CheckpointError(
                f"{run / name}: expected a trained checkpoint. Run `python -m lab.pairs.train {pair.name}` "
                "first."
            )
    with TemporaryDirectory() as fresh:
        weights, bundle = Path(fresh) / "weights", Path(fresh) / place.bundle.name
        for name in pair.checkpoints:
            shutil.copytree(run / name, weights / name)
            if name in pair.rounded:
                round_checkpoint(weights / name)
        prompts = [problem.prompt for problem in pair.held_out(pair.verified)]
        context = pair.shapes[pair.edge]["max_position_embeddings"]
        convert(run / pair.edge, bundle, variants=VARIANTS, context=context, prompts=prompts)
        shutil.copytree(weights, place.weights, dirs_exist_ok=True)
        shutil.rmtree(place.bundle, ignore_errors=True)
        shutil.copytree(bundle, place.bundle)


def ship_taught(run: Path, pair: Pair, shipped: Mapping[str, ShippedPair] = PAIRS) -> None:
    """Put the model of a run of `lab distil` beside the pair's own, in eight bits."""
    place = shipped[TAUGHT.format(pair.name)]
    with TemporaryDirectory() as fresh:
        made = Path(fresh) / place.model
        shutil.copytree(run / pair.student, made)
        round_checkpoint(made)
        examples = shipped[pair.name].checkpoint / EXAMPLES
        if examples.is_file():
            shutil.copyfile(examples, made / EXAMPLES)
        shutil.rmtree(place.checkpoint, ignore_errors=True)
        shutil.copytree(made, place.checkpoint)


@dataclass(frozen=True)
class ShipOptions:
    """Make a finished training run the shipped pair, with its model card.

    The testbed needs its extra and WordNet 3.0.
    """

    pair: str = option(None, "whose run", flags=("pair",), choices=list(RECIPES))
    run: Path | None = option(None, "folder of the training run (runs/PAIR)", flags=("run",), nargs="?")
    taught: Path | None = option(
        None,
        "of a run of `python -m lab distil`, whose model ships beside the pair's own, which all stay",
        metavar="FOLDER",
    )


def main(argv: list[str] | None = None) -> int:
    example = "example: python -m lab.pairs.ship testbed runs/testbed"
    return run_options("lab.pairs.ship", _run, ShipOptions, argv, example)


def _run(options: ShipOptions) -> None:
    pair, taught = RECIPES[options.pair](), options.taught
    run = options.run or Path("runs") / options.pair
    place = PAIRS[pair.name]
    # A wrong file or an unfinished run is told before minutes of conversion.
    logs = card.logs_of(pair, place.weights, run, taught)
    if taught:
        ship_taught(taught, pair)
    else:
        ship(run, pair)
    if not (place.checkpoint / EXAMPLES).is_file():
        examples = [problem.prompt for problem in pair.held_out(len(pair.curriculum.causal.families))]
        text = json.dumps(examples, indent=1, ensure_ascii=False) + "\n"
        (place.checkpoint / EXAMPLES).write_text(text, encoding="utf-8")
    if pair.subjects:
        text = json.dumps(pair.subjects, indent=0, ensure_ascii=False) + "\n"
        (place.weights / SUBJECTS).write_text(text, encoding="utf-8")
    if world_of(DEFAULT_MODEL) == pair.name:
        model = TAUGHT.format(pair.name) if taught else pair.name
        anchor(["--model", model, "--prompt", SAMPLE_PROMPT, "--codec", "predictive", "-o", str(SAMPLE)])
    card.write(pair, logs, place.weights)
    print(f"shipped to {place.weights}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
