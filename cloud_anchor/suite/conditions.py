"""What a device can be sent of an unfinished answer, and the controls beside it.

Every condition turns a run, stopped early, into an AnchorSet; the edge fills all of them alike, but for those
that show the tokens alone. The controls that need the finished answer (a prefix of it, tokens at random from
it) say what a selection has to beat. Does not know how answers are measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, verify_drafts
from cloud_anchor.selection.scorer import Scorer
from payload import AnchorSet, Contract

TRUST = 0.5
"""Probability from which a prediction of tiny-dream binds: its early ones on long answers are often poor."""

THRESHOLDS = (0.0, 0.3, 0.5, 0.8)


@dataclass(frozen=True)
class Situation:
    """One prompt at one fraction of the steps.

    early: the run stopped there; full: the same run's finished answer, as token ids.
    parallel: another run of as many steps, that commits whatever is sure at once; None where there is none.
    """

    early: Denoised
    full: list[int]
    contract: Contract
    scorer: Scorer
    seed: int
    parallel: Denoised | None = None

    def anchors(self, tokens: dict[int, int], length: int | None = None) -> AnchorSet:
        kept = {p: t for p, t in tokens.items() if t < self.contract.vocab_size}
        return self.early.anchors(kept, self.contract, length)

    @cached_property
    def committed(self) -> dict[int, int]:
        """What is committed before the first end marker, by position."""
        return {p: t for p, t in enumerate(self.early.answer) if t != self.early.mask_id}


def nothing(at: Situation) -> AnchorSet:
    """No anchors: the edge model alone."""
    return at.anchors({})


def committed(at: Situation) -> AnchorSet:
    """The paper's anchors (section 3.1): everything committed, at its place."""
    return at.anchors(at.committed, at.early.length)


def leading_run(at: Situation) -> AnchorSet:
    """Only the anchors before the first gap; the edge goes on alone."""
    run: dict[int, int] = {}
    for position in range(at.early.canvas):
        if position not in at.committed:
            break
        run[position] = at.committed[position]
    return at.anchors(run)


def prefix(at: Situation) -> AnchorSet:
    """As many tokens as the anchors, from the beginning of the finished answer."""
    return at.anchors(dict(enumerate(at.full[: len(at.committed)])))


def scattered(at: Situation) -> AnchorSet:
    """As many tokens as the anchors, from anywhere in the finished answer."""
    count = min(len(at.committed), len(at.full))
    places = random.Random(at.seed).sample(range(len(at.full)), count)
    return at.anchors({p: at.full[p] for p in places})


def draft(at: Situation) -> AnchorSet:
    """The diffusion model's current prediction at every position: stopping early, no edge model."""
    return confident(at, 0.0)


def confident(at: Situation, threshold: float = TRUST) -> AnchorSet:
    """The current predictions of at least this probability, and the predicted length."""
    answer = at.early.predicted_answer
    kept = {p: t for p, t in enumerate(answer) if at.early.confidence[p] >= threshold}
    return at.anchors(kept, len(answer))


def product(at: Situation, threshold: float = TRUST) -> AnchorSet:
    """The current predictions that the edge model would not have written by itself."""
    if not at.early.predicted_answer:
        return at.anchors({}, 0)
    (found,) = verify_drafts(at.scorer, [at.early], at.contract, EdgeAwareConfig(threshold=threshold))
    return at.anchors({p: found.text[p] for p in found.sent}, len(found.text))


def swiftly(at: Situation, select: Callable[[Situation], AnchorSet]) -> AnchorSet:
    """A selection from the run that commits in parallel; raises ValueError where there is none."""
    if at.parallel is None:
        raise ValueError("expected a run that commits in parallel, found none")
    return select(replace(at, early=at.parallel))


def random_tokens(at: Situation) -> AnchorSet:
    """The anchors' positions with other tokens, drawn from the whole vocabulary (section 4.4)."""
    rng = random.Random(at.seed)
    drawn = {position: rng.randrange(at.contract.vocab_size) for position in sorted(at.committed)}
    return at.anchors(drawn, at.early.length)


def random_positions(at: Situation) -> AnchorSet:
    """The anchors' tokens at other positions of the answer, in another order (section 4.4)."""
    rng = random.Random(at.seed)
    size = max(len(at.full), max(at.committed, default=-1) + 1)
    places = rng.sample(range(size), len(at.committed))
    return at.anchors(dict(zip(places, at.committed.values(), strict=True)))


@dataclass(frozen=True)
class Condition:
    """A selection, and whether the edge fills what it leaves open."""

    select: Callable[[Situation], AnchorSet]
    filled: bool = True


ALONE, ANCHORS, BARE, LEADING = "edge alone", "anchors, filled", "anchors alone", "leading run, continued"
PREFIX, BARE_PREFIX, SCATTERED = "prefix of as many, continued", "prefix alone", "as many at random, filled"
DRAFT, FULL = "early stop: every prediction", "full run"
RANDOM_TOKENS, RANDOM_POSITIONS = "random tokens, their places", "their tokens, random places"


def aware(threshold: float) -> str:
    """The name of the edge-aware selection in which predictions of at least this probability bind."""
    return f"edge-aware, p >= {threshold:g}"


CONDITIONS: dict[str, Condition] = {
    ANCHORS: Condition(committed),
    BARE: Condition(committed, filled=False),
    LEADING: Condition(leading_run),
    PREFIX: Condition(prefix),
    BARE_PREFIX: Condition(prefix, filled=False),
    SCATTERED: Condition(scattered),
    DRAFT: Condition(draft, filled=False),
    "predictions, p >= 0.8, filled": Condition(partial(confident, threshold=0.8)),
    **{aware(threshold): Condition(partial(product, threshold=threshold)) for threshold in THRESHOLDS},
}
"""What is compared at every fraction, by the name a table gives it."""

SWIFT = "edge-aware, parallel commits"
SWIFT_DRAFT = "early stop, parallel commits"
PARALLEL_CONDITIONS: dict[str, Condition] = {
    SWIFT_DRAFT: Condition(partial(swiftly, select=draft), filled=False),
    SWIFT: Condition(partial(swiftly, select=product)),
}
"""What the product sends, and its own control: as many steps, in which whatever is sure commits at once."""

ABLATION: dict[str, Condition] = {
    ANCHORS: CONDITIONS[ANCHORS],
    RANDOM_TOKENS: Condition(random_tokens),
    RANDOM_POSITIONS: Condition(random_positions),
    PREFIX: CONDITIONS[PREFIX],
}

ORDERS: dict[str, dict[str, object]] = {
    "entropy": {"order": "entropy", "temperature": 0.2, "top_p": 0.95},
    "confidence": {"order": "confidence"},
}
"""The paper's order and settings, and the unfiltered one."""


PARALLEL = "parallel"
"""The name of the run that commits in parallel, in the order by confidence."""


def plan(order: str, base: DenoiseConfig) -> DenoiseConfig:
    """`base` with the settings of an order."""
    return replace(base, **ORDERS[order])  # type: ignore[arg-type]


def parallel_plan(base: DenoiseConfig, steps: int) -> DenoiseConfig:
    """`base`, run for so many steps with parallel commits, and no stop: it is looked at on the way."""
    return replace(commit_in_parallel(base), steps=steps, stop=None)
