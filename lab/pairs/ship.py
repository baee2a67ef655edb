"""Release of a training run as a shipped pair: `python -m lab.pairs.ship`.

Responsible for copying the checkpoints, for converting the edge model to the bundle that edge_runtime ships,
and for the size of all weights together. Everything is made and checked beside the shipped files first: a
bundle that fails its verification, or weights that are too large, replace nothing. Not responsible for the
conversion (see `convert`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import PAIRS, ShippedPair
from common.cli import run_command
from convert.conversion import convert
from lab.pairs.row_weights import round_checkpoint
from lab.pairs.shapes import SHAPES
from lab.pairs.tiny.tasks import held_out_problems

VARIANTS = ("fp32", "int8", "int4")
PROMPTS = 12
"""Held-out prompts on which the variants are verified."""

MOST_BYTES = 40_000_000
"""Bytes that the weights of all shipped pairs, checkpoints and bundles, may have together."""
_WEIGHTS = (".safetensors", ".onnx", ".data")


@dataclass(frozen=True)
class Release:
    """What of a training run ships.

    checkpoints: folders of the run. edge: the one that is made a bundle. context: tokens of the bundle.
    prompts:     for the verification of its variants.
    rounded:     checkpoints whose weights ship in eight bits.
    trained_by:  the command that makes the run.
    """

    pair: ShippedPair
    checkpoints: tuple[str, ...]
    edge: str
    context: int
    prompts: Callable[[], list[str]]
    trained_by: str
    rounded: tuple[str, ...] = ()


TINY_RELEASE = Release(
    PAIRS["tiny"],
    tuple(SHAPES),
    "tiny-qwen",
    256,
    lambda: [problem.prompt for problem in held_out_problems(PROMPTS)],
    "make train",
)


def weight_bytes(folders: Iterable[Path]) -> int:
    """Bytes of the weights in these folders; one that is missing has none."""
    return sum(f.stat().st_size for folder in folders for f in folder.rglob("*") if f.suffix in _WEIGHTS)


def ship(run: Path, release: Release, pairs: Mapping[str, ShippedPair] = PAIRS) -> int:
    """Replace a pair's weights and bundle by those of a run; returns the bytes of all pairs' weights then.

    Raises ConvertError, or CheckpointError without a run or where the weights are too large together.
    """
    for name in release.checkpoints:
        if not (run / name / "model.safetensors").is_file():
            raise CheckpointError(
                f"{run / name}: expected a trained checkpoint. Run `{release.trained_by}` first."
            )
    pair = release.pair
    kept = [folder for one in pairs.values() if one != pair for folder in (one.weights, one.bundle)]
    with TemporaryDirectory() as place:
        weights, bundle = Path(place) / "weights", Path(place) / pair.bundle.name
        for name in release.checkpoints:
            shutil.copytree(run / name, weights / name)
            if name in release.rounded:
                round_checkpoint(weights / name)
        prompts = release.prompts()
        convert(run / release.edge, bundle, variants=VARIANTS, context=release.context, prompts=prompts)
        total = weight_bytes([*kept, weights, bundle])
        if total > MOST_BYTES:
            raise CheckpointError(
                f"{run}: expected at most {MOST_BYTES / 1e6:.0f} MB for the weights of all shipped pairs, "
                f"found {total / 1e6:.1f}: {weight_bytes([weights]) / 1e6:.1f} in its checkpoints, "
                f"{weight_bytes([bundle]) / 1e6:.1f} in the bundle, {weight_bytes(kept) / 1e6:.1f} beside. "
                "Ship fewer checkpoints or variants, or smaller models."
            )
        shutil.copytree(weights, pair.weights, dirs_exist_ok=True)
        shutil.rmtree(pair.bundle, ignore_errors=True)
        shutil.copytree(bundle, pair.bundle)
    return total


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.pairs.ship",
        description="Make a finished training run the shipped pair.",
        epilog="example: python -m lab.pairs.ship --run runs/tiny",
    )
    parser.add_argument("--run", type=Path, default=Path("runs/tiny"), help="folder of the training run")
    args = parser.parse_args(argv)
    return run_command("ship", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    total = ship(args.run, TINY_RELEASE)
    print(f"shipped; weights of all pairs: {total / 1e6:.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
