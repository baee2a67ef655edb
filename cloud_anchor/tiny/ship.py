"""Release of a training run as the shipped pair: `python -m cloud_anchor.tiny.ship`.

Responsible for copying the checkpoints to `weights` and for converting tiny-qwen to the bundle that
edge_runtime ships; a bundle that fails its verification replaces nothing. Not responsible for the conversion
(see `convert`).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from cloud_anchor.errors import CheckpointError
from cloud_anchor.tiny.shapes import SHAPES, WEIGHTS
from cloud_anchor.tiny.tasks import held_out_problems
from convert.conversion import convert
from edge_runtime.bundle.lookup import SHIPPED
from payload.cli import run_command

VARIANTS = ("fp32", "int8", "int4")
PROMPTS = 12
"""Held-out prompts on which the variants are verified."""


def ship(run: Path) -> None:
    """Replace weights and bundle by those of a run; raises ConvertError, or CheckpointError without a run."""
    for name in SHAPES:
        if not (run / name / "model.safetensors").is_file():
            raise CheckpointError(f"{run / name}: expected a trained checkpoint. Run `make train` first.")
    prompts = [problem.prompt for problem in held_out_problems(PROMPTS)]
    convert(run / "tiny-qwen", SHIPPED, variants=VARIANTS, context=256, prompts=prompts, force=True)
    for name in SHAPES:
        shutil.copytree(run / name, WEIGHTS / name, dirs_exist_ok=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.tiny.ship",
        description="Make a finished training run the shipped pair.",
        epilog="example: python -m cloud_anchor.tiny.ship --run runs/tiny",
    )
    parser.add_argument("--run", type=Path, default=Path("runs/tiny"), help="folder of the training run")
    args = parser.parse_args(argv)
    return run_command("ship", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    ship(args.run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
