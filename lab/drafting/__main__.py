"""Training of a block drafter: `python -m lab.drafting`.

The drafter learns the target's own greedy answers to training prompts, which are written first and kept.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from cloud_anchor.errors import RequestError
from common.cli import run_command
from lab.drafting.accepted import tokens_a_pass
from lab.drafting.losses import CHAIN_WEIGHT, FOCAL_WEIGHT
from lab.drafting.options import GAMMA_OF_BLOCK, add_options, plan_of, prepare
from lab.drafting.training import NAME, LossOptions, train_drafter
from lab.pairs.trainer import plot


def main(argv: list[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m lab.drafting",
        description="Train a block drafter for an autoregressive target, and measure its accepted length.",
        epilog="example: python -m lab.drafting --target cloud_anchor/weights/tiny/tiny-qwen "
        "--weights --focal --chain -o runs/drafter; then python -m convert runs/drafter/drafter -o "
        "bundles/drafter --variants fp32",
    )
    add_options(parser, Path("runs/drafter"))
    group = parser.add_argument_group("loss (arXiv 2606.11552); without any of these, the cross-entropy")
    group.add_argument(
        "--weights",
        nargs="?",
        type=float,
        const=0.0,
        metavar="GAMMA",
        help="weigh place k with exp(-(k - 1) / gamma); gamma: 10 for K = 16, in proportion for other K",
    )
    group.add_argument("--focal", nargs="?", type=float, const=FOCAL_WEIGHT, default=0.0, metavar="ALPHA")
    group.add_argument("--chain", nargs="?", type=float, const=CHAIN_WEIGHT, default=0.0, metavar="ALPHA")
    args = parser.parse_args(argv)
    again = f"interrupted: run the same command again to continue from {args.output}"
    return run_command("train", lambda: _run(args), interrupted=again)


def _run(args: Namespace) -> int:
    gamma = None if args.weights is None else args.weights or GAMMA_OF_BLOCK * args.block
    if gamma is not None and gamma <= 0:
        raise RequestError(f"--weights: expected a gamma above 0, found {gamma}")
    plan = plan_of(args, LossOptions(gamma, args.focal, args.chain))
    material = prepare(args)
    trainer = train_drafter(
        plan,
        material.folder,
        material.answers,
        material.loaded,
        args.output,
        seed=args.seed,
        device=args.device,
    )
    plot([trainer.log], args.output / "loss.png")
    lengths = tokens_a_pass(trainer.averaged().eval(), trainer.form, material.held_out, material.loaded[0])
    mean = sum(lengths) / len(lengths)
    print(
        f"{trainer.step} steps, written to {args.output / NAME}; {mean:.2f} tokens a pass of the target over "
        f"{len(lengths)} held-out answers",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
