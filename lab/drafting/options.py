"""The options that a block drafter's training and the comparison of its losses share, and what they name.

Responsible for the command line's part and for loading the target and its answers. Not responsible for
training (see `drafter_training`).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint
from edge_runtime.bundle.manifest import BlockForm
from lab.drafting.answers import Target, TargetAnswer, prompts_of, training_prompts
from lab.drafting.training import DrafterPlan, LossOptions, load_target, weights_digest

GAMMA_OF_BLOCK = 10 / 16
"""gamma over K: that of the paper is 10 for K = 16."""


def add_options(parser: ArgumentParser, output: Path) -> None:
    """The options that training and its ablation share."""
    parser.add_argument("--target", required=True, metavar="FOLDER", help="checkpoint to draft for")
    parser.add_argument("-o", "--output", type=Path, default=output, help="folder of the run")
    parser.add_argument(
        "--data", default="tiny", metavar="SOURCE", help="prompts: tiny, testbed or testbed:KIND (tiny)"
    )
    parser.add_argument(
        "--held-out-data", nargs="+", metavar="SOURCE", help="of the held-out prompts, in turn (--data's)"
    )
    parser.add_argument("--answers", type=int, default=2000, metavar="N", help="of the target, to learn from")
    parser.add_argument("--held-out", type=int, default=40, metavar="N", help="prompts to measure with (40)")
    plan = DrafterPlan()
    for name, says in (
        ("block", "K, tokens drafted in one pass"),
        ("hidden", "hidden size"),
        ("layers", "layers"),
        ("blocks", "drafts of each answer in a batch"),
        ("steps", "training steps"),
        ("tokens", "of text in a batch"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=getattr(plan, name), metavar="N", help=f"{says} (%(default)s)"
        )
    parser.add_argument(
        "--from-target",
        action="store_true",
        help="of the target's width, with its embedding, head and first layers to begin with",
    )
    parser.add_argument(
        "--states",
        action="store_true",
        help="also read the target's last hidden states, as DFlash does; not for the device",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="processor threads (default: torch's)")


def plan_of(args: Namespace, loss: LossOptions) -> DrafterPlan:
    """The plan of shared options; raises RequestError."""
    return DrafterPlan(
        block=args.block,
        hidden=None if args.from_target else args.hidden,
        layers=args.layers,
        blocks=args.blocks,
        states=args.states,
        steps=args.steps,
        tokens=args.tokens,
        loss=loss,
    )


@dataclass(frozen=True)
class Material:
    """What the shared options name: the target, and its answers to training and to held-out prompts."""

    folder: Path
    loaded: tuple[Target, BlockForm, dict[str, Any]]
    answers: list[TargetAnswer]
    held_out: list[TargetAnswer]


def prepare(args: Namespace) -> Material:
    """Loads the target and writes its answers, where they are not there yet."""
    for name in ("answers", "held_out"):
        if getattr(args, name) < 1:
            raise RequestError(
                f"--{name.replace('_', '-')}: expected at least 1, found {getattr(args, name)}"
            )
    if args.threads:
        torch.set_num_threads(args.threads)
    source = prompts_of(args.data)
    folder = find_checkpoint(args.target)
    loaded = load_target(folder, args.block, args.device)
    target = loaded[0]
    settings = {"target": weights_digest(folder), "data": args.data, "context": target.context}
    problems = list(islice(training_prompts(source.families, 0), args.answers))
    answers = target.answers(problems, args.output / "answers.jsonl", settings)
    sources = args.held_out_data or [args.data]
    asked = {
        problem.prompt: problem
        for together in zip(*(prompts_of(name).held_out(args.held_out, 0) for name in sources), strict=True)
        for problem in together
    }
    held_out = target.answers(
        list(asked.values())[: args.held_out],
        args.output / "held-out.jsonl",
        settings | {"held out": sources},
    )
    return Material(folder, loaded, answers, held_out)
