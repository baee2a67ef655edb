"""The options that a drafter's training and the comparison of its losses share, and what they name.

Responsible for the options, and for opening the target and its answers. Not responsible for training (see
`training`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path

import torch

from cloud_anchor.model.checkpoint import find_checkpoint
from common.cli import option
from lab.drafting.answers import Target, TargetAnswer, families_of, training_prompts
from lab.drafting.training import DrafterPlan, DrafterSize, LossOptions, load_target, weights_digest
from lab.options import require_at_least
from lab.questions.items import load_items

GAMMA_OF_BLOCK = 10 / 16
"""gamma over K: that of the paper is 10 for K = 16."""


@dataclass(frozen=True)
class DrafterOptions(DrafterSize):
    target: str = option("tiny-qwen", "autoregressive checkpoint to draft for", metavar="CHECKPOINT")
    learn: str | None = option(
        None,
        "prompts to learn from: tiny, testbed or testbed:KIND (default: the first of --data)",
        metavar="SOURCE",
    )
    answers: int = option(2000, "of the target, to learn from", metavar="N")
    from_target: bool = option(
        False, "of the target's width, with its embedding, head and first layers to begin with"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "answers")

    def plan(self, loss: LossOptions) -> DrafterPlan:
        """The drafter of these options, trained with this loss."""
        size = {each.name: getattr(self, each.name) for each in fields(DrafterSize)}
        return DrafterPlan(**(size | ({"hidden": None} if self.from_target else {})), loss=loss)


@dataclass(frozen=True)
class Material:
    """What the options name: the target, and its answers to training and to held-out prompts."""

    target: Target
    answers: list[TargetAnswer]
    held_out: list[TargetAnswer]


def prepare(
    options: DrafterOptions, sources: Sequence[str], prompts: int, folder: Path, device: str | None
) -> Material:
    """Opens the target and has it write its answers into the folder, where they are not there yet.

    sources, prompts: of the held-out questions. Raises RequestError.
    """
    learn = options.learn or sources[0]
    families = families_of(learn)
    held_out = [(item.benchmark, item.prompt) for item in load_items(list(sources), prompts, 0)]
    target = load_target(find_checkpoint(options.target), options.block, device_of(device))
    settings = {"target": weights_digest(target.folder), "data": learn, "context": target.context}
    learned = [(each.family, each.prompt) for each in islice(training_prompts(families, 0), options.answers)]
    return Material(
        target,
        target.answers(learned, folder / "answers.jsonl", settings),
        target.answers(held_out, folder / "held-out.jsonl", settings | {"held out": list(sources)}),
    )


def device_of(name: str | None) -> str:
    """The named device, else CUDA where there is one."""
    return name or ("cuda" if torch.cuda.is_available() else "cpu")
