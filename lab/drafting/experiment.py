"""`python -m lab run losses`: the left-to-right losses of a block drafter compared.

The same drafter is trained without a term, with each and with all, the same steps and the same seeds;
measured are the tokens a pass of the target on held-out prompts. Not responsible for training (see
`training`) or accepted lengths (see `accepted`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint
from common.cli import option
from edge_runtime.commands import positive
from lab.drafting.accepted import tokens_a_pass
from lab.drafting.answers import training_prompts
from lab.drafting.losses import CHAIN_WEIGHT, FOCAL_WEIGHT
from lab.drafting.training import DrafterOptions, DrafterTrainer, load_target
from lab.experiment import About, Experiment, Records, Setup
from lab.pairs.trainer import train
from lab.questions.items import load_items
from lab.statistics import summary
from lab.store import Record
from lab.tables import Row, Table

GAMMA_OF_BLOCK = 10 / 16
"""gamma over K: that of the paper is 10 for K = 16."""
BASE, ALL = "base", "all"
LONG = 60
"""The fewest tokens of a long answer."""


@dataclass(frozen=True)
class ComparisonOptions(DrafterOptions):
    target: str = option("tiny-qwen", "autoregressive checkpoint to draft for", metavar="CHECKPOINT")
    answers: int = option(2000, "of the target, to learn from", positive)
    seeds: int = option(3, "runs of each loss, from --seed", positive)


def losses(block: int) -> dict[str, dict[str, float]]:
    """The losses that are compared, as terms of `drafter_loss`."""
    weights, focal, chain = (
        {"gamma": GAMMA_OF_BLOCK * block},
        {"focal": FOCAL_WEIGHT},
        {"chain": CHAIN_WEIGHT},
    )
    return {BASE: {}, "+weights": weights, "+focal": focal, "+chain": chain, ALL: weights | focal | chain}


def items(setup: Setup) -> list[str]:
    """The training runs: with each of the losses from each seed."""
    first = setup.options.seed
    seeds = range(first, first + setup.own.seeds)
    return [f"{loss}, seed {seed}" for seed in seeds for loss in losses(setup.own.block)]


def measure(setup: Setup, runs: Sequence[str]) -> Iterator[Record]:
    """Trains on the target's answers, which it writes into the folder first; raises RequestError."""
    own, options = setup.own, setup.options
    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    questions = load_items(options.sources, options.prompts or 0, 0)
    learned = training_prompts(options.sources[0], own.answers)
    target = load_target(find_checkpoint(own.target), own.block, device)
    if own.layers > (most := int(target.net.config.num_hidden_layers)):
        raise RequestError(f"--layers: expected at most the {most} of the target, found {own.layers}")
    answers = target.answers(learned, options.output / "answers.jsonl")
    held_out = target.answers([item.prompt for item in questions], options.output / "held-out.jsonl")
    for run in runs:
        loss, _, seed = run.partition(", seed ")
        terms, folder = losses(own.block)[loss], options.output / f"{loss.strip('+')}-{seed}"
        folder.mkdir(exist_ok=True)
        trainer = DrafterTrainer(own, terms, target, answers, folder, seed=int(seed), device=device)
        trainer.resume()
        train(trainer)
        net = trainer.averaged().eval()
        yield {
            "loss": loss,
            "answers": [
                {
                    "question": number,
                    "family": item.benchmark,
                    "tokens": len(found.answer),
                    "tokens a pass": tokens_a_pass(net, found, target),
                }
                for number, (item, found) in enumerate(zip(questions, held_out, strict=True))
            ],
        }


def tables(records: Records, about: About) -> list[Table]:
    """Tokens a pass by kind of answer and loss, each answer's averaged over the seeds."""
    if not records:
        return []
    frame = pd.DataFrame([row | {"loss": record["loss"]} for record in records for row in record["answers"]])
    keys = ["question", "family", "tokens"]
    by_loss = frame.pivot_table("tokens a pass", keys, "loss", sort=False).reset_index()
    groups = {"every answer": by_loss, f"{LONG} tokens and more": by_loss[by_loss["tokens"] >= LONG]}
    groups |= {str(family): group for family, group in by_loss.groupby("family", sort=False)}
    rows: list[Row] = []
    for name, group in groups.items():
        row: Row = {"answers": name, "number": len(group)}
        row |= {loss: summary(group[loss]) for loss in by_loss.columns[len(keys) :]}
        if {ALL, BASE} <= row.keys():
            row["all less base"] = summary(group[ALL] - group[BASE])
        if len(group):
            rows.append(row)
    own: ComparisonOptions = about.own
    setting = f"blocks of {own.block}, {own.steps} steps, {own.seeds} seeds"
    return [Table.of("losses", f"Tokens a pass of the target by kind of answer: {setting}", rows)]


EXPERIMENT = Experiment(
    "losses",
    "The losses of a block drafter",
    measure,
    tables,
    items=items,
    options=ComparisonOptions,
    defaults={"prompts": 40},
    opens=False,
)
