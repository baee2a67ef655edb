"""How an answer is denoised: every option of the sampler, checked, in one place.

Knows names and ranges. Does not know what the parts do (see `orders`, `schedules`, `stops`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.schedules import SCHEDULES
from cloud_anchor.sampling.scores import SCORES
from cloud_anchor.sampling.stops import STOPS
from payload.anchors import MAX_CANVAS

ORIGIN, CONFIDENCE = "origin", "confidence"
ALGORITHMS = (ORIGIN, *SCORES)
MAX_STEPS = 65_536

SURE = 0.9
"""Probability from which tokens commit in parallel: as in Fast-dLLM (arXiv 2505.22618)."""


@dataclass(frozen=True)
class DenoiseConfig:
    """How an answer is denoised. The paper: entropy, temperature 0.2, top_p 0.95, 128 steps, canvas 512.

    canvas:      response positions, answer and the end markers after it.
    total_steps: steps planned; with `schedule` it says how many tokens commit at each.
    steps:       steps run before stopping; None for all.
    alg:         order of commits: origin (at random), maskgit_plus, topk_margin, entropy, confidence.
    temperature: 0 takes the likeliest token. top_p, top_k: filters, None for none.
    alg_temp:    None or 0 takes the surest positions, else they are drawn from softmax(score / alg_temp).
    threshold:   None commits the schedule's quota; else every position whose unfiltered probability is at
                 least this.
    stop:        None runs `steps` steps; else a rule that may end an answer before: complete, prophet,
                 plateau.
    prefix_every: 0 runs the prompt in every step; N runs it in every Nth and keeps its keys and values in
                 between, which is approximate (see `dream.Prefix`): an answer may then depend on its company
                 in a batch.
    seed:        each answer draws from a generator of its own that starts here.
    """

    canvas: int = 256
    total_steps: int = 128
    steps: int | None = None
    alg: str = "confidence"
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    alg_temp: float | None = None
    schedule: str = "dream"
    threshold: float | None = None
    stop: str | None = None
    prefix_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _check("canvas", 1 <= self.canvas <= MAX_CANVAS, f"1 to {MAX_CANVAS} positions", self.canvas)
        _check("total steps", 1 <= self.total_steps <= MAX_STEPS, f"1 to {MAX_STEPS}", self.total_steps)
        _check("steps", 1 <= self.run_steps <= self.total_steps, f"1 to {self.total_steps}", self.steps)
        _check("algorithm", self.alg in ALGORITHMS, " or ".join(ALGORITHMS), self.alg)
        _check("schedule", self.schedule in SCHEDULES, " or ".join(SCHEDULES), self.schedule)
        _check("stop", self.stop is None or self.stop in STOPS, " or ".join(STOPS), self.stop)
        _check("prefix every", 0 <= self.prefix_every <= MAX_STEPS, f"0 to {MAX_STEPS}", self.prefix_every)
        _check("temperature", 0 <= self.temperature <= 100, "0 to 100", self.temperature)
        _check("top-p", self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1", self.top_p)
        _check("top-k", self.top_k is None or self.top_k >= 1, "at least 1", self.top_k)
        _check("alg-temp", self.alg_temp is None or 0 <= self.alg_temp <= 100, "0 to 100", self.alg_temp)
        _check(
            "threshold",
            self.threshold is None or 0 < self.threshold <= 1,
            "above 0, at most 1",
            self.threshold,
        )
        _check(
            "threshold", self.threshold is None or self.alg != ORIGIN, "an algorithm with an order", self.alg
        )

    @property
    def run_steps(self) -> int:
        return self.total_steps if self.steps is None else self.steps


def in_parallel(config: DenoiseConfig) -> DenoiseConfig:
    """`config`, committing whatever is sure at once and stopping where the answer is complete.

    For selections that send current predictions: what is sure helps the rest as soon as it is committed, so
    the predictions after a tenth of the steps rest on most of the answer instead of on a tenth of it.
    """
    return replace(config, alg=CONFIDENCE, threshold=SURE, stop=config.stop or "complete")


def _check(name: str, holds: bool, expected: str, found: object) -> None:
    if not holds:
        raise RequestError(f"{name}: expected {expected}, found {found!r}")


def steps_for(fraction: float, total_steps: int) -> int:
    """Whole steps in a fraction of the plan, at least one: 0.1 of 128 are 12, as in the published runs."""
    _check("fraction", 0 < fraction <= 1, "above 0, at most 1", fraction)
    return max(1, int(fraction * total_steps + 1e-9))
