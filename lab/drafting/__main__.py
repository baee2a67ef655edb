"""Training of a block drafter: `python -m lab.drafting`.

The drafter learns the target's own greedy answers to training prompts, which are written first and kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cloud_anchor.errors import RequestError
from common.cli import CommandParser, option, run_command
from lab.drafting.accepted import tokens_a_pass
from lab.drafting.losses import CHAIN_WEIGHT, FOCAL_WEIGHT
from lab.drafting.options import GAMMA_OF_BLOCK, DrafterOptions, device_of, prepare
from lab.drafting.training import LossOptions, train_drafter
from lab.options import add_options, given
from lab.pairs.trainer import plot


@dataclass(frozen=True)
class TrainOptions(DrafterOptions):
    output: Path = option(Path("runs/drafter"), "folder of the run", Path, flags=("-o", "--output"))
    data: tuple[str, ...] = option(("tiny",), "sources of the held-out prompts, in turn", metavar="SOURCE")
    prompts: int = option(40, "how many held-out prompts to measure with", metavar="N")
    seed: int = option(0, "of the run")
    device: str | None = option(None, "cuda, cpu (default: cuda where there is one)")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int)
    weights: float | None = option(
        None,
        "weigh place k with exp(-(k - 1) / gamma); gamma: 10 for K = 16, in proportion for other K",
        kind=float,
        nargs="?",
        const=0.0,
        metavar="GAMMA",
    )
    focal: float = option(0.0, "weight of the focal term", nargs="?", const=FOCAL_WEIGHT, metavar="ALPHA")
    chain: float = option(0.0, "weight of the chain term", nargs="?", const=CHAIN_WEIGHT, metavar="ALPHA")

    @property
    def loss(self) -> LossOptions:
        """The interventions that are turned on; raises RequestError."""
        gamma = None if self.weights is None else self.weights or GAMMA_OF_BLOCK * self.block
        if gamma is not None and gamma <= 0:
            raise RequestError(f"--weights: expected a gamma above 0, found {gamma}")
        return LossOptions(gamma, self.focal, self.chain)


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.drafting",
        description="Train a block drafter for an autoregressive target, and measure its accepted length.\n"
        "--weights, --focal and --chain are those of arXiv 2606.11552; without them, the cross-entropy.",
        epilog="example: python -m lab.drafting --target tiny-qwen --weights --focal --chain",
    )
    add_options(parser, TrainOptions)
    found = vars(parser.parse_args(argv))
    return run_command(
        "train",
        lambda: _run(TrainOptions(**given(TrainOptions, found))),
        interrupted="interrupted: run the same command again to continue",
    )


def _run(options: TrainOptions) -> None:
    plan, out = options.plan(options.loss), options.output
    if options.threads:
        torch.set_num_threads(options.threads)
    material = prepare(options, options.data, options.prompts, out, options.device)
    device = device_of(options.device)
    trainer = train_drafter(plan, material.target, material.answers, out, seed=options.seed, device=device)
    plot([trainer.log], out / "loss.png")
    lengths = tokens_a_pass(trainer.averaged().eval(), trainer.form, material.held_out, material.target)
    mean = sum(lengths) / len(lengths)
    print(
        f"{trainer.step} steps; {mean:.2f} tokens a pass of the target over {len(lengths)} held-out answers",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
