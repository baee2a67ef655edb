"""Release of a training run as a shipped pair: `python -m lab.pairs.ship testbed`.

Responsible for copying the checkpoints, for converting the edge model to the bundle that edge_runtime ships,
for the size of all weights together, and for questions as examples where there are none. Everything is made
and checked beside the shipped files first: an unfinished run, a bundle that fails its verification, or
weights that are too large, replace nothing. Not responsible for the conversion (see `convert`) or the card's
text (see `card`).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cloud_anchor.anchor import main as anchor
from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.model.checkpoint import EXAMPLES
from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS, TAUGHT, ShippedPair, world_of
from common.cli import CommandParser, run_command
from convert.conversion import convert
from edge_runtime.fill import SAMPLE
from lab.pairs import card
from lab.pairs.pair import Pair
from lab.pairs.row_weights import round_checkpoint
from lab.pairs.train import RECIPES

SAMPLE_PROMPT = "What is the capital of Japan?"
"""Of the payload that ships with the device's wheel."""
VARIANTS = ("fp32", "int8", "int4")

MOST_BYTES = 40_000_000
"""Bytes that the weights of all shipped pairs, checkpoints and bundles, may have together."""
_WEIGHTS = (".safetensors", ".onnx", ".data")


@dataclass(frozen=True)
class Options:
    """The command's options, which its help explains."""

    pair: str
    run: Path | None
    keep: list[str]
    taught: Path | None


def weight_bytes(folders: Iterable[Path]) -> int:
    """Bytes of the weights in these folders, each counted once; one that is missing has none."""
    return sum(f.stat().st_size for folder in set(folders) for f in folder.rglob("*") if f.suffix in _WEIGHTS)


def _all_weights(
    shipped: Mapping[str, ShippedPair], replaced: Collection[Path], by: Collection[Path], run: Path
) -> int:
    """Bytes of all shipped weights once some folders are replaced; raises CheckpointError for too many."""
    folders = {
        folder
        for pair in shipped.values()
        for folder in (pair.bundle, *(pair.weights.iterdir() if pair.weights.is_dir() else ()))
    }
    kept, fresh = weight_bytes(folders - set(replaced)), weight_bytes(by)
    if kept + fresh > MOST_BYTES:
        raise CheckpointError(
            f"{run}: expected at most {MOST_BYTES / 1e6:.0f} MB for the weights of all shipped pairs, found "
            f"{(kept + fresh) / 1e6:.1f}: {fresh / 1e6:.1f} in what is new, {kept / 1e6:.1f} beside. Ship "
            "fewer checkpoints or variants, or smaller models."
        )
    return kept + fresh


def ship(
    run: Path, pair: Pair, shipped: Mapping[str, ShippedPair] = PAIRS, keep: Collection[str] = ()
) -> int:
    """Replace a pair's weights and bundle by those of a run; returns the bytes of all pairs' weights then.

    keep: models that stay as they ship, the edge model's bundle with it. Raises ConvertError, or
    CheckpointError without a run or where the weights are too large together.
    """
    place = shipped[pair.name]
    made = [name for name in pair.checkpoints if name not in keep]
    for name in made:
        if not (run / name / "model.safetensors").is_file():
            raise CheckpointError(
                f"{run / name}: expected a trained checkpoint. Run `python -m lab.pairs.train {pair.name}` "
                "first."
            )
    with TemporaryDirectory() as fresh:
        weights, bundle = Path(fresh) / "weights", Path(fresh) / place.bundle.name
        for name in pair.checkpoints:
            shutil.copytree((run if name in made else place.weights) / name, weights / name)
            if name in made and name in pair.rounded:
                round_checkpoint(weights / name)
        if pair.edge in made:
            prompts = [problem.prompt for problem in pair.held_out(pair.verified)]
            context = pair.shapes[pair.edge]["max_position_embeddings"]
            convert(run / pair.edge, bundle, variants=VARIANTS, context=context, prompts=prompts)
        else:
            shutil.copytree(place.bundle, bundle)
        replaced = [place.bundle, *(place.weights / name for name in pair.checkpoints)]
        total = _all_weights(shipped, replaced, [weights, bundle], run)
        shutil.copytree(weights, place.weights, dirs_exist_ok=True)
        shutil.rmtree(place.bundle, ignore_errors=True)
        shutil.copytree(bundle, place.bundle)
    return total


def ship_taught(run: Path, pair: Pair, shipped: Mapping[str, ShippedPair] = PAIRS) -> int:
    """Put the model of a run of `lab distil` beside the pair's own, in eight bits; returns the bytes of all
    pairs' weights then. Raises CheckpointError where these are too large together.
    """
    place = shipped[TAUGHT.format(pair.name)]
    with TemporaryDirectory() as fresh:
        made = Path(fresh) / place.model
        shutil.copytree(run / pair.student, made)
        round_checkpoint(made)
        examples = shipped[pair.name].checkpoint / EXAMPLES
        if examples.is_file():
            shutil.copyfile(examples, made / EXAMPLES)
        total = _all_weights(shipped, [place.checkpoint], [made], run)
        shutil.rmtree(place.checkpoint, ignore_errors=True)
        shutil.copytree(made, place.checkpoint)
    return total


def main(argv: list[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.pairs.ship",
        description="Make a finished training run the shipped pair, with its model card.\nThe testbed needs "
        "its extra and WordNet 3.0.",
        epilog="example: python -m lab.pairs.ship testbed runs/testbed",
    )
    parser.add_argument("pair", choices=list(RECIPES))
    parser.add_argument("run", type=Path, nargs="?", help="folder of the training run (runs/PAIR)")
    parser.add_argument(
        "--keep",
        nargs="+",
        metavar="MODEL",
        default=[],
        help="models of the pair that stay as they ship, such as testbed-qwen and its bundle",
    )
    parser.add_argument(
        "--taught",
        type=Path,
        metavar="FOLDER",
        help="of a run of `python -m lab distil`, whose model ships beside the pair's own, which all stay",
    )
    options = parser.parse(Options, argv)
    return run_command("ship", lambda: _run(options))


def _run(options: Options) -> None:
    pair = RECIPES[options.pair]()
    run = options.run or Path("runs") / pair.name
    place = PAIRS[pair.name]
    if wrong := [name for name in options.keep if name not in pair.checkpoints]:
        raise RequestError(f"--keep: expected some of {', '.join(pair.checkpoints)}, found {wrong[0]}")
    if options.taught and (options.run or options.keep):
        raise RequestError("--taught: expected no other run and no --keep beside it")
    keep = pair.checkpoints if options.taught else options.keep
    made = [name for name in pair.recipes if name not in keep]
    # A wrong file or an unfinished run is told before minutes of conversion.
    if options.taught:
        card.check_finished(options.taught, pair.student, 1)
    logs = card.logs_of(pair, place.weights, run, made, options.taught)
    total = ship_taught(options.taught, pair) if options.taught else ship(run, pair, keep=keep)
    if not (place.checkpoint / EXAMPLES).is_file():
        examples = [problem.prompt for problem in pair.held_out(len(pair.curriculum.causal.families))]
        text = json.dumps(examples, indent=1, ensure_ascii=False) + "\n"
        (place.checkpoint / EXAMPLES).write_text(text, encoding="utf-8")
    if world_of(DEFAULT_MODEL) == pair.name:
        anchor(["--model", DEFAULT_MODEL, "--prompt", SAMPLE_PROMPT, "--confidence", "-o", str(SAMPLE)])
    card.write(pair, logs, place.weights)
    print(f"shipped to {place.weights}; weights of all pairs: {total / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
