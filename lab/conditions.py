"""Experimental conditions: the product's selections of an unfinished run, and the controls beside them.

Each condition turns a run, stopped early, into an AnchorSet. The controls that need the finished answer (a
prefix of it, tokens at random from it) are defined here and say what a selection has to beat. Not responsible
for how answers are measured (see `case`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.scorer import Scorer
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, PAPER, Selection, select
from payload import AnchorSet, Contract

CLAIMED_THRESHOLD = 0.5
"""Threshold of the edge-aware selection in claims about quota runs: fixed before the measurements."""


@dataclass(frozen=True)
class Situation:
    """One prompt at one fraction of the steps.

    early: the run stopped there; full: the same run's finished answer, as token ids.
    """

    early: Denoised
    full: list[int]
    contract: Contract
    scorer: Scorer
    seed: int

    def anchors(self, tokens: dict[int, int], length: int | None = None) -> AnchorSet:
        """These tokens by position, without special tokens."""
        kept = {p: t for p, t in tokens.items() if self.contract.is_ordinary(t)}
        return self.early.anchors(kept, self.contract, length)

    def select(self, selection: Selection) -> AnchorSet:
        """The anchors of a selection; they may be none."""
        return select(self.early, self.contract, selection, self.scorer).anchors

    @cached_property
    def committed(self) -> dict[int, int]:
        """The tokens committed before the first end marker, by position."""
        return {p: t for p, t in enumerate(self.early.answer) if t != self.early.mask_id}


Select = Callable[[Situation], AnchorSet]


def committed(at: Situation) -> AnchorSet:
    """The paper's anchors (section 3.1)."""
    return at.select(Selection(PAPER))


def draft(at: Situation) -> AnchorSet:
    """The diffusion model's prediction at every position: stopping early, without an edge model."""
    return at.select(Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)))


def edge_aware(at: Situation, threshold: float) -> AnchorSet:
    """The edge-aware selection in which predictions of at least this probability bind."""
    return at.select(Selection(EDGE_AWARE, EdgeAwareConfig(threshold=threshold)))


def default(at: Situation) -> AnchorSet:
    """The product's default selection with the product's default options."""
    return at.select(Selection())


def leading_run(at: Situation) -> AnchorSet:
    """Only the anchors before the first gap; the edge model continues alone."""
    run: dict[int, int] = {}
    for position in range(at.early.canvas):
        if position not in at.committed:
            break
        run[position] = at.committed[position]
    return at.anchors(run)


def prefix(at: Situation, count: int | None = None) -> AnchorSet:
    """`count` tokens, by default as many as the anchors, from the beginning of the finished answer."""
    return at.anchors(dict(enumerate(at.full[: len(at.committed) if count is None else count])))


def scattered(at: Situation, count: int | None = None) -> AnchorSet:
    """`count` tokens, by default as many as the anchors, from anywhere in the finished answer."""
    count = min(len(at.committed) if count is None else count, len(at.full))
    places = random.Random(at.seed).sample(range(len(at.full)), count)
    return at.anchors({p: at.full[p] for p in places})


def first_predictions(at: Situation, count: int) -> AnchorSet:
    """The first `count` current predictions; the edge model continues alone."""
    return at.anchors(dict(enumerate(at.early.predicted_answer[:count])))


def surest_predictions(at: Situation, count: int) -> AnchorSet:
    """The `count` most probable current predictions, and the predicted length."""
    drafted, sure = at.early.predicted_answer, at.early.confidence
    places = sorted(range(len(drafted)), key=lambda place: (-sure[place], place))[:count]
    return at.anchors({place: drafted[place] for place in sorted(places)}, len(drafted))


def random_tokens(at: Situation) -> AnchorSet:
    """The anchors' positions with other tokens, drawn from the whole vocabulary (section 4.4)."""
    rng = random.Random(at.seed)

    def draw() -> int:
        while not at.contract.is_ordinary(id_ := rng.randrange(at.contract.vocab_size)):
            pass
        return id_

    return at.anchors({position: draw() for position in sorted(at.committed)}, at.early.length)


def random_positions(at: Situation) -> AnchorSet:
    """The anchors' tokens at other positions of the answer, in another order (section 4.4)."""
    rng = random.Random(at.seed)
    size = max(len(at.full), max(at.committed, default=-1) + 1)
    places = rng.sample(range(size), len(at.committed))
    return at.anchors(dict(zip(places, at.committed.values(), strict=True)))


ALONE, ANCHORS, BARE, LEADING = "edge alone", "anchors, filled", "anchors alone", "leading run, continued"
PREFIX, SCATTERED = "prefix of as many, continued", "as many at random, filled"
DRAFT, FULL = "early stop: every prediction", "full run"
FIRST, SUREST = "early stop, the first of as many, continued", "early stop, the surest of as many, filled"
RANDOM_TOKENS, RANDOM_POSITIONS = "random tokens, their places", "their tokens, random places"
EVERY_PREDICTION, CLAIMED = "edge-aware, p >= 0", f"edge-aware, p >= {CLAIMED_THRESHOLD:g}"
PRODUCT, PARALLEL_DRAFT = "edge-aware, parallel commits", "early stop, parallel commits"

CONDITIONS: dict[str, Select] = {
    ANCHORS: committed,
    BARE: committed,
    LEADING: leading_run,
    PREFIX: prefix,
    SCATTERED: scattered,
    DRAFT: draft,
    EVERY_PREDICTION: partial(edge_aware, threshold=0.0),
    CLAIMED: partial(edge_aware, threshold=CLAIMED_THRESHOLD),
    RANDOM_TOKENS: random_tokens,
    RANDOM_POSITIONS: random_positions,
    PARALLEL_DRAFT: draft,
    PRODUCT: default,
}
"""Selections and controls by the name that tables give them."""

NOT_FILLED = frozenset((BARE, DRAFT, PARALLEL_DRAFT))
"""Those of which the tokens are shown as they are; the edge model fills the others."""

COMPARED = (ANCHORS, BARE, LEADING, PREFIX, SCATTERED, DRAFT, EVERY_PREDICTION, CLAIMED)
"""Compared at every fraction."""

PARALLEL_CONDITIONS = (PARALLEL_DRAFT, PRODUCT)
"""Of the run with parallel commits, after as many steps: the product with its defaults, and its control."""

ABLATION = (ANCHORS, RANDOM_TOKENS, RANDOM_POSITIONS, PREFIX)

ORDERS: dict[str, dict[str, object]] = {
    "entropy": {"order": "entropy", "temperature": 0.2, "top_p": 0.95},
    "confidence": {"order": "confidence"},
}
"""The paper's order and settings, and the unfiltered one."""

PARALLEL = "parallel"
"""The name of the run with parallel commits, in the order by confidence."""


def plan(name: str, base: DenoiseConfig) -> DenoiseConfig:
    """`base` with the settings of an order, committing the schedule's quota; or with parallel commits for all
    of the steps, without a stop rule: such a run is observed on the way.
    """
    if name == PARALLEL:
        return replace(commit_in_parallel(base), steps=base.total_steps, stop=None)
    return replace(base, commit="quota", **ORDERS[name])  # type: ignore[arg-type]
