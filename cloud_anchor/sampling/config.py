"""Sampler configuration: every option of a denoising run, checked in one place.

Responsible for names, ranges and the resolution of the commit rule. Not responsible for what the options do
(see `scores`, `schedules`, `unmasking`, `stops`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

from cloud_anchor.errors import require
from cloud_anchor.sampling.schedules import SCHEDULES
from cloud_anchor.sampling.scores import SCORES
from cloud_anchor.sampling.stops import STOPS
from payload.anchors import MAX_CANVAS

ORIGIN, CONFIDENCE = "origin", "confidence"
ORDERS = (ORIGIN, *SCORES)
MAX_STEPS = 65_536

CommitRule = Literal["auto", "quota"] | float
NAMED_COMMITS = ("auto", "quota")
PARALLEL_THRESHOLD = 0.9
"""Probability from which tokens commit in parallel: as in Fast-dLLM (arXiv 2505.22618)."""


@dataclass(frozen=True)
class DenoiseConfig:
    """Options of a denoising run. The paper: entropy, temperature 0.2, top_p 0.95, 128 steps, canvas 512.

    canvas:       response positions: the answer and the end markers after it.
    total_steps:  planned steps; `schedule` derives from them how many tokens commit at each step.
    steps:        steps to run before stopping; None for all.
    block_length: positions of a block; blocks are written from left to right (see `blocks`). None: one block.
    block_add:    share of the last open block that is committed before the next one opens; 1: all of it. For
                  commit rules other than the quota.
    order:        order of commits: origin (random), maskgit_plus, topk_margin, entropy, confidence.
    temperature:  0 takes the most probable token. top_p, top_k: filters, None for none.
    order_temperature: None or 0 commits the highest-scored positions, else positions are drawn from
                  softmax(score / order_temperature).
    commit:       number of tokens per step. "quota": as many as the schedule says; a number: every position
                  whose unfiltered probability is at least this; "auto": decided by `resolve_commit` from the
                  selection. A sampler that is given "auto" applies the quota, or its own rule.
    parallel:     the probability that "auto" commits from where predictions are sent: the model's own.
    stop:         rule that may end an answer before `steps`: complete, prophet, plateau; None for
                  none.
    seed:         initial seed of each answer's own generator.
    """

    canvas: int = 256
    total_steps: int = 128
    steps: int | None = None
    block_length: int | None = None
    block_add: float = 1.0
    order: str = CONFIDENCE
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    order_temperature: float | None = None
    schedule: str = "dream"
    commit: CommitRule = "auto"
    parallel: float = PARALLEL_THRESHOLD
    stop: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require("canvas", 1 <= self.canvas <= MAX_CANVAS, f"1 to {MAX_CANVAS} positions", self.canvas)
        require("total steps", 1 <= self.total_steps <= MAX_STEPS, f"1 to {MAX_STEPS}", self.total_steps)
        require("steps", 1 <= self.run_steps <= self.total_steps, f"1 to {self.total_steps}", self.steps)
        block = self.block_length
        require("block length", block is None or block >= 1, "at least 1 position", block)
        require("block add", 0 < self.block_add <= 1, "above 0, at most 1", self.block_add)
        require("order", self.order in ORDERS, " or ".join(ORDERS), self.order)
        require("schedule", self.schedule in SCHEDULES, " or ".join(SCHEDULES), self.schedule)
        require("stop", self.stop is None or self.stop in STOPS, " or ".join(STOPS), self.stop)
        require("temperature", 0 <= self.temperature <= 100, "0 to 100", self.temperature)
        require("top-p", self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1", self.top_p)
        require("top-k", self.top_k is None or self.top_k >= 1, "at least 1", self.top_k)
        heat = self.order_temperature
        require("order temperature", heat is None or 0 <= heat <= 100, "0 to 100", heat)
        self._check_commit()

    def _check_commit(self) -> None:
        named = self.commit in NAMED_COMMITS
        allowed = named or (not isinstance(self.commit, str) and 0 < self.commit <= 1)
        known = f"{', '.join(NAMED_COMMITS)} or a probability above 0, at most 1"
        require("commit", allowed, known, self.commit)
        scored = self.rule == "quota" or self.order != ORIGIN
        require("commit", scored, f"a scored order beside {self.commit}", self.order)
        require("parallel", 0 < self.parallel <= 1, "above 0, at most 1", self.parallel)

    @property
    def run_steps(self) -> int:
        return self.total_steps if self.steps is None else self.steps

    @property
    def block(self) -> int:
        """Positions of a block; the last one may have fewer."""
        return min(self.block_length or self.canvas, self.canvas)

    @property
    def blocks(self) -> int:
        return -(-self.canvas // self.block)

    @property
    def rule(self) -> str:
        """The name of the commit rule in `commits.RULES`."""
        if isinstance(self.commit, str):
            return "quota" if self.commit == "auto" else self.commit
        return "threshold"

    def to_json(self) -> dict[str, object]:
        """The options, those of blocks where there are several."""
        unused = {"parallel"}  # what "auto" became is `commit`
        unused |= set() if self.blocks > 1 else {"block_length", "block_add"}
        return {name: value for name, value in asdict(self).items() if name not in unused}


def resolve_commit(config: DenoiseConfig, *, sends_predictions: bool) -> DenoiseConfig:
    """`config` with commit rule "auto" replaced by the rule that suits the selection.

    The schedule's quota where commits are what is sent, and for any order but confidence. Parallel commits
    where current predictions are sent: these improve with the number of commits they are conditioned on.
    """
    if config.commit != "auto":
        return config
    if sends_predictions and config.order == CONFIDENCE:
        return commit_in_parallel(config)
    return replace(config, commit="quota")


def commit_in_parallel(config: DenoiseConfig) -> DenoiseConfig:
    """`config` with parallel commits from `parallel` on, and stop rule `complete` unless it has one."""
    return replace(config, order=CONFIDENCE, commit=config.parallel, stop=config.stop or "complete")


def steps_for(fraction: float, total_steps: int) -> int:
    """Whole steps in a fraction of the plan, at least one: 0.1 of 128 are 12, as in the published runs."""
    require("fraction", 0 < fraction <= 1, "above 0, at most 1", fraction)
    return max(1, int(fraction * total_steps + 1e-9))
