"""Options of a denoising run: names, ranges, and what `commit` "auto" becomes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

from cloud_anchor.errors import require
from payload.anchors import MAX_CANVAS

CONFIDENCE = "confidence"
ORDERS = ("maskgit_plus", "entropy", CONFIDENCE)
STOPS = ("complete", "prophet", "plateau")
"""The names of `scores.ORDERS` and `stops.STOPS`, which PyTorch computes."""
MAX_STEPS = 65_536

DEFAULT_PLAN = (256, 128)
"""Canvas and steps where a checkpoint states none: the paper's timing runs (table 6)."""

CommitRule = Literal["auto", "quota"] | float
PARALLEL_THRESHOLD = 0.9
"""Probability from which tokens commit in parallel: as in Fast-dLLM (arXiv 2505.22618)."""


@dataclass(frozen=True)
class DenoiseConfig:
    """Options of a denoising run. The paper: entropy, temperature 0.2, top_p 0.95, 128 steps, canvas 512.

    canvas:       response positions: the answer and the end markers after it.
    total_steps:  planned steps; the model's schedule derives from them how many tokens commit at each step.
    steps:        steps to run before stopping; None for all.
    order:        order of commits: maskgit_plus, entropy, confidence.
    temperature:  0 takes the most probable token. top_p: a filter, None for none.
    commit:       number of tokens per step. "quota": as many as the schedule says; a number: every position
                  whose unfiltered probability is at least this; "auto": decided by `resolve_commit` from the
                  selection. A sampler that is given "auto" applies the quota, or its own rule.
    parallel:     the probability that "auto" commits from where predictions are sent: the model's own.
    stop:         rule that may end an answer before `steps`: complete, prophet, plateau; None for none.
    seed:         initial seed of each answer's own generator.
    """

    canvas: int = 256
    total_steps: int = 128
    steps: int | None = None
    order: str = CONFIDENCE
    temperature: float = 0.0
    top_p: float | None = None
    commit: CommitRule = "auto"
    parallel: float = PARALLEL_THRESHOLD
    stop: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require("canvas", 1 <= self.canvas <= MAX_CANVAS, f"1 to {MAX_CANVAS} positions", self.canvas)
        require("total steps", 1 <= self.total_steps <= MAX_STEPS, f"1 to {MAX_STEPS}", self.total_steps)
        require("steps", 1 <= self.run_steps <= self.total_steps, f"1 to {self.total_steps}", self.steps)
        require("order", self.order in ORDERS, " or ".join(ORDERS), self.order)
        require("stop", self.stop is None or self.stop in STOPS, " or ".join(STOPS), self.stop)
        require("temperature", 0 <= self.temperature <= 100, "0 to 100", self.temperature)
        require("top-p", self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1", self.top_p)
        require("parallel", 0 < self.parallel <= 1, "above 0, at most 1", self.parallel)
        known = self.commit in ("auto", "quota") if isinstance(self.commit, str) else 0 < self.commit <= 1
        require("commit", known, "auto, quota or a probability above 0, at most 1", self.commit)

    @property
    def run_steps(self) -> int:
        return self.total_steps if self.steps is None else self.steps

    def to_json(self) -> dict[str, object]:
        """The options; what "auto" became of `parallel` is `commit`."""
        return {name: value for name, value in asdict(self).items() if name != "parallel"}


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
