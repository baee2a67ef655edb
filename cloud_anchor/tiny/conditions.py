"""What a device can be sent of an unfinished answer, and the controls beside it.

Every condition turns a run, stopped early, into an AnchorSet; the edge fills all of them alike. The controls
that need the finished answer (a prefix of it, tokens at random from it) say what a selection has to beat.
Does not know how answers are measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from cloud_anchor.denoised import Denoised
from cloud_anchor.edge_aware import WalkConfig, edge_aware, walk
from cloud_anchor.readers import Reader
from cloud_anchor.sampler import DenoiseConfig
from payload import AnchorSet, Contract

TRUST = 0.5
"""Probability from which a prediction of tiny-dream binds: its early ones on long answers are often poor."""


@dataclass(frozen=True)
class Situation:
    """One prompt at one fraction of the steps.

    early: the run stopped there; full: the same run's finished answer, as token ids.
    """

    early: Denoised
    full: list[int]
    contract: Contract
    reader: Reader
    seed: int

    def anchors(self, tokens: dict[int, int], length: int | None = None) -> AnchorSet:
        kept = {p: t for p, t in tokens.items() if t < self.contract.vocab_size}
        return self.early.anchors(kept, self.contract, length)

    @property
    def committed(self) -> dict[int, int]:
        """What is committed before the first end marker, by position."""
        return {p: t for p, t in enumerate(self.early.answer) if t != self.early.mask_id}


def committed(at: Situation) -> AnchorSet:
    """The paper's anchors: everything committed, at its place."""
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
    answer = at.early.predicted_answer
    return at.anchors(dict(enumerate(answer)), len(answer))


def product(at: Situation, threshold: float = TRUST) -> AnchorSet:
    """The current predictions that the edge model would not have written by itself."""
    if not at.early.predicted_answer:
        return at.anchors({}, 0)
    (found,) = walk(at.reader, [at.early], at.contract, WalkConfig(threshold=threshold))
    return edge_aware(at.early, found, at.contract)


CONDITIONS: dict[str, Callable[[Situation], AnchorSet]] = {
    "anchors, forced decoding": committed,
    "leading run, then continue": leading_run,
    "prefix of as many, then continue": prefix,
    "as many at random": scattered,
    "draft: all predictions": draft,
    "edge-aware": product,
    "edge-aware, all binding": partial(product, threshold=0.0),
    "edge-aware, p >= 0.8": partial(product, threshold=0.8),
}
"""By the name a table gives them. `anchors alone` and `edge alone` need no selection of their own."""

ORDERS: dict[str, dict[str, object]] = {
    "entropy": {"alg": "entropy", "temperature": 0.2, "top_p": 0.95},
    "confidence": {"alg": "confidence"},
}
"""The paper's order and settings, and the unfiltered one."""


def plan(order: str, base: DenoiseConfig) -> DenoiseConfig:
    """`base` with the settings of an order."""
    return replace(base, **ORDERS[order])  # type: ignore[arg-type]
