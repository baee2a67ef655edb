"""The options of `python -m lab distil`, for both kinds of students.

Responsible for their values. Not responsible for what is done with them (see `command`, `with_adapters`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import PARALLEL_THRESHOLD
from common.cli import option
from lab.options import require_at_least
from lab.pairs.train import RECIPES

FORMAT = "bfloat16"
"""Of the model that writes the answers and of the curve's; of weights under adapters."""
SUBJECT, QUESTION = "subject", "question"

_COUNTS = "steps answers per_subject canvas tokens every watched batch lora pass_tokens".split()
_OF_OTHERS = {
    True: "pair one_answer per_subject fill hold more share no_compile".split(),
    False: "data pass_tokens".split(),
}
"""By whether adapters are taught: the options that are for the other kind of student."""


@dataclass(frozen=True)
class DistilOptions:
    """Raises RequestError for values that there are not, and for those of the other kind of student."""

    output: Path = option(Path("runs/distil"), "folder of the run", Path, flags=("-o", "--output"))
    lora: int | None = option(
        None,
        "teach adapters of this rank (LoRA), such as 32, to any model of the Dream family; they are merged "
        "into its weights in the end",
        kind=int,
        metavar="RANK",
    )
    data: tuple[str, ...] = option(
        (),
        "with --lora: sources of the prompts, as of `lab run`, or prompts=FILE.jsonl with a prompt a row",
        metavar="SOURCE",
    )
    pair: str | None = option(
        None, "whose training questions are asked (default: of MODEL, or testbed)", choices=list(RECIPES)
    )
    steps: int | None = option(
        None, "training steps (default: 1000; with --lora six times through the answers)", kind=int
    )
    one_answer: str = option(
        SUBJECT, "teach one answer for each subject, or for each question", choices=(SUBJECT, QUESTION)
    )
    answers: int = option(500, "most questions of a kind, with --lora of all, that the model answers itself")
    per_subject: int = option(4, "most of them about one subject")
    canvas: int | None = option(
        None, "of its own answers (default: 128; with --lora the model's, or 256)", kind=int
    )
    certainty: float = option(0.0, "weight of the loss of certainty (dParallel: 1)")
    edge: str | None = option(
        None,
        "weigh the loss of a token by this edge model's surprise, such as testbed-qwen",
        metavar="CHECKPOINT",
    )
    fill: str | None = option(
        None, "show in some gaps what this edge model would write there", metavar="CHECKPOINT"
    )
    hold: float = option(0.5, "share of the other rows' target that is what the model said before")
    more: tuple[str, ...] = option(
        (), "kinds of which there are more rows, such as comparison=2", metavar="KIND=N"
    )
    keep: float = option(0.0, "share of the untaught weights in the checkpoint that is written")
    tokens: int = option(4096, "of a batch")
    pass_tokens: int = option(4096, "with --lora: most tokens of a pass; a larger batch takes several")
    share: float = option(0.45, "of the rows with long answers")
    rate: float | None = option(
        None,
        "peak learning rate (default: 0.006 for the matrices, by Muon, and a fifth for all else, by AdamW; "
        "with --lora 2e-05, by AdamW)",
        kind=float,
    )
    commit: float = option(
        PARALLEL_THRESHOLD, "probability from which the taught model's tokens are to commit"
    )
    every: int = option(100, "training steps between two points of the curve")
    watched: int = option(12, "held-out questions with long answers of which each point is the mean")
    batch: int = option(16, "answers written at a time")
    seed: int = option(0, "of the questions and the batches")
    device: str = option("cuda" if torch.cuda.is_available() else "cpu", "cuda, cpu")
    threads: int | None = option(None, "processor threads (default: torch's)", kind=int)
    no_compile: bool = option(False, "run without torch.compile")

    def __post_init__(self) -> None:
        require_at_least(self, 1, *_COUNTS)
        for name in ("share", "keep", "hold"):
            if not 0 <= getattr(self, name) <= 1:
                raise RequestError(f"--{name}: expected 0 to 1, found {getattr(self, name)}")
        factors(self.more)
        if not 0 < self.commit <= 1:
            raise RequestError(f"--commit: expected above 0, at most 1, found {self.commit}")
        for name in ("certainty", "rate"):
            if not 0 <= (getattr(self, name) or 0) < float("inf"):
                raise RequestError(f"--{name}: expected a number from 0 on, found {getattr(self, name)}")
        if self.lora is not None and not self.data:
            raise RequestError("--lora: expected sources of prompts (--data gsm8k=FILE.jsonl), found none")
        for each in fields(self):
            if each.name in _OF_OTHERS[self.lora is not None] and getattr(self, each.name) != each.default:
                wanted = "without" if self.lora is not None else "with"
                raise RequestError(f"--{each.name.replace('_', '-')}: expected {wanted} --lora only")

    @property
    def commits(self) -> list[float]:
        """The probabilities from which tokens commit in the curve."""
        return sorted({PARALLEL_THRESHOLD, self.commit}, reverse=True)

    @property
    def stated_commit(self) -> float | None:
        """What the checkpoint that is written is to state; None for the usual one."""
        return None if self.commit == PARALLEL_THRESHOLD else self.commit


def factors(texts: Sequence[str]) -> dict[str, float]:
    """The factors of kinds, from "comparison=2"; raises RequestError."""
    found = {}
    for text in texts:
        kind, _, factor = text.partition("=")
        if not kind or not re.fullmatch(r"\d+(\.\d+)?", factor):
            raise RequestError(f"--more: expected a kind and a factor, such as comparison=2, found {text}")
        found[kind] = float(factor)
    return found
