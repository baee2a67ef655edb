"""`python -m lab run losses`: the left-to-right losses of a block drafter compared.

The same drafter is trained without an intervention, with each and with all, the same steps and the same
seeds; measured is its mean accepted length on held-out prompts, also of the long answers and by family.
Responsible for the comparison. Not responsible for training (see `training`) or accepted lengths (see
`accepted`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice
from pathlib import Path

import torch

from cloud_anchor.model.checkpoint import find_checkpoint
from common.cli import option
from lab.drafting.accepted import tokens_a_pass
from lab.drafting.answers import Target, TargetAnswer, families_of, training_prompts
from lab.drafting.losses import CHAIN_WEIGHT, FOCAL_WEIGHT
from lab.drafting.training import (
    DrafterPlan,
    DrafterSize,
    LossOptions,
    load_target,
    train_drafter,
    weights_digest,
)
from lab.experiment import About, Experiment, Models, Records, Setup
from lab.options import require_at_least
from lab.questions.items import load_items
from lab.statistics import summary
from lab.store import Record
from lab.tables import Row, Table

GAMMA_OF_BLOCK = 10 / 16
"""gamma over K: that of the paper is 10 for K = 16."""
BASE, ALL = "base", "all"
EVERY = "every answer"
LONG = 60
"""The fewest tokens of a long answer."""


@dataclass(frozen=True)
class ComparisonOptions(DrafterSize):
    target: str = option("tiny-qwen", "autoregressive checkpoint to draft for", metavar="CHECKPOINT")
    answers: int = option(2000, "of the target, to learn from", metavar="N")
    seeds: int = option(3, "runs of each loss, from --seed", metavar="N")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "answers", "seeds")

    def plan(self, loss: str) -> DrafterPlan:
        """The drafter of these options, trained with one of the `losses`."""
        size = {each.name: getattr(self, each.name) for each in fields(DrafterSize)}
        return DrafterPlan(**size, loss=losses(self.block)[loss])


@dataclass(frozen=True)
class Arm:
    """One training run: with one of the losses, from one seed. id: also says on how many answers."""

    id: str
    loss: str
    seed: int


def losses(block: int) -> dict[str, LossOptions]:
    """The losses that are compared, by name."""
    gamma = GAMMA_OF_BLOCK * block
    return {
        BASE: LossOptions(),
        "+weights": LossOptions(gamma=gamma),
        "+focal": LossOptions(focal=FOCAL_WEIGHT),
        "+chain": LossOptions(chain=CHAIN_WEIGHT),
        ALL: LossOptions(gamma, FOCAL_WEIGHT, CHAIN_WEIGHT),
    }


def items(setup: Setup) -> list[Arm]:
    first, count = setup.options.seed, setup.options.prompts
    return [
        Arm(f"{name}, seed {seed}, {count} answers", name, seed)
        for seed in range(first, first + setup.own.seeds)
        for name in losses(setup.own.block)
    ]


@dataclass(frozen=True)
class Material:
    """What the options name: the target, and its answers to training and to held-out prompts."""

    target: Target
    answers: list[TargetAnswer]
    held_out: list[TargetAnswer]


@lru_cache(1)
def prepared(
    own: ComparisonOptions, sources: tuple[str, ...], prompts: int, folder: Path, device: str
) -> Material:
    """Opens the target and has it write its answers into the folder, where they are not there yet.

    sources, prompts: of the held-out questions; the first is also learnt from. Raises RequestError.
    """
    families = families_of(sources[0])
    held_out = [(item.benchmark, item.prompt) for item in load_items(list(sources), prompts, 0)]
    target = load_target(find_checkpoint(own.target), own.block, device)
    settings = {"target": weights_digest(target.folder), "data": sources[0], "context": target.context}
    learned = [(each.family, each.prompt) for each in islice(training_prompts(families, 0), own.answers)]
    return Material(
        target,
        target.answers(learned, folder / "answers.jsonl", settings),
        target.answers(held_out, folder / "held-out.jsonl", settings | {"held out": list(sources)}),
    )


def measure(setup: Setup, arms: Sequence[Arm]) -> Iterator[Record]:
    own, options = setup.own, setup.options
    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    material = prepared(own, tuple(options.sources), options.prompts or 0, options.output, device)
    for arm in arms:
        trainer = train_drafter(
            own.plan(arm.loss),
            material.target,
            material.answers,
            options.output / f"{arm.loss.strip('+')}-{arm.seed}",
            seed=arm.seed,
            device=device,
        )
        net = trainer.averaged().eval()
        yield {
            "loss": arm.loss,
            "seed": arm.seed,
            "lengths": tokens_a_pass(net, trainer.form, material.held_out, material.target),
            "families": [item.family for item in material.held_out],
            "sizes": [len(item.answer) for item in material.held_out],
        }


def groups_of(families: Sequence[str], sizes: Sequence[int]) -> dict[str, list[int]]:
    """The answers, by place: all of them, the long ones where there are any, and each family's.

    families, sizes: of every answer, its size in tokens.
    """
    groups = {EVERY: list(range(len(families)))}
    long = [place for place, size in enumerate(sizes) if size >= LONG]
    if long:
        groups[f"{LONG} tokens and more"] = long
    for family in dict.fromkeys(families):
        groups[family] = [place for place, name in enumerate(families) if name == family]
    return groups


def lengths_by_loss(records: Records) -> dict[str, list[float]]:
    """Each answer's accepted length, averaged over the seeds: intervals are those of the answers."""
    runs: dict[str, list[Sequence[float]]] = {}
    for record in records:
        runs.setdefault(record["loss"], []).append(record["lengths"])
    return {
        loss: [sum(values) / len(values) for values in zip(*of, strict=True)] for loss, of in runs.items()
    }


def tables(records: Records, about: About) -> list[Table]:
    if not records:
        return []
    lengths = lengths_by_loss(records)
    groups = groups_of(records[0]["families"], records[0]["sizes"])
    own: ComparisonOptions = about.own
    setting = f"blocks of {own.block}, {own.steps} steps, {own.seeds} seeds"
    by_group: list[Row] = []
    for group, places in groups.items():
        row: Row = {"answers": group, "number": len(places)}
        row |= {loss: summary([values[i] for i in places]) for loss, values in lengths.items()}
        if ALL in lengths and BASE in lengths:
            row["all less base"] = summary([lengths[ALL][i] - lengths[BASE][i] for i in places])
        by_group.append(row)
    return [
        Table.of("groups", f"Tokens a pass of the target by kind of answer: {setting}", by_group),
        Table.of("losses", f"Tokens a pass of the target: {setting}", list(_by_loss(records, lengths))),
    ]


def _by_loss(records: Records, lengths: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    """Over all answers: each loss, its paired difference to base, and the mean of each seed."""
    for loss, values in lengths.items():
        seeds = [record["lengths"] for record in records if record["loss"] == loss]
        less = None
        if BASE in lengths and loss != BASE:
            less = summary([mine - base for mine, base in zip(values, lengths[BASE], strict=True)])
        yield {
            "loss": loss,
            "tokens a pass": summary(values),
            "less base": less,
            "by seed": " ".join(f"{sum(run) / len(run):.2f}" for run in seeds),
        }


EXPERIMENT = Experiment(
    "losses",
    "The losses of a block drafter",
    measure,
    tables,
    items=items,
    options=ComparisonOptions,
    defaults={"prompts": 40},
    models=Models.NONE,
    together=1,
)
