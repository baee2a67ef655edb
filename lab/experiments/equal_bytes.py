"""Controls of a payload: what as many bytes would be worth otherwise.

The edge model alone, the paper's anchors and their leading run; and, of as many tokens as a payload sends or
of as many as its bytes hold where that is more, a prefix of the finished answer, tokens of it at random, and
the first and the surest predictions of the same unfinished run. All are filled by the payload's edge model.
Not responsible for the payload or for tables (see `passes`, `length_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cloud_anchor.sampling.denoised import Denoised
from lab.case import Case
from lab.conditions import (
    ALONE,
    ANCHORS,
    FIRST,
    LEADING,
    PREFIX,
    SCATTERED,
    SUREST,
    Situation,
    committed,
    first_predictions,
    leading_run,
    prefix,
    scattered,
    surest_predictions,
)
from lab.store import Record
from payload import AnchorSet

EQUAL: Mapping[str, Callable[[Situation, int], AnchorSet]] = {
    PREFIX: prefix,
    SCATTERED: scattered,
    FIRST: first_predictions,
    SUREST: surest_predictions,
}
"""Controls of a number of tokens."""

OF_THE_PAPER: Mapping[str, Callable[[Situation], AnchorSet]] = {ANCHORS: committed, LEADING: leading_run}
"""Controls from the run in the paper's order."""


@dataclass(frozen=True)
class Budget:
    """What a payload takes: its tokens and its bytes."""

    tokens: int
    size: int


def controls(case: Case, at: Situation, paper: Denoised, budget: Budget) -> dict[str, Record]:
    """Every control by name. at: the run whose payload has this budget; paper: of as many passes."""

    def answer(anchors: AnchorSet, run: Denoised) -> Record:
        judged = case.judged(case.fill(anchors).ids, at.full)
        return judged | {"sent": len(anchors), "bytes": case.size(anchors, extras=run.extras())}

    found = {ALONE: case.judged(case.alone().ids, at.full) | {"sent": 0, "bytes": 0}}
    for name, take in OF_THE_PAPER.items():
        found[name] = answer(take(replace(at, early=paper)), paper)
    for name, equal in EQUAL.items():
        most = most_within(at, equal, budget, lambda a: case.size(a, extras=at.early.extras()))
        found[name] = answer(most, at.early)
    return found


def most_within(
    at: Situation,
    take: Callable[[Situation, int], AnchorSet],
    budget: Budget,
    size: Callable[[AnchorSet], int],
) -> AnchorSet:
    """The control's anchors of the budget's tokens, or of as many more as its bytes hold.

    Sizes grow with the count but for a few bytes, so the search may stop a token short of the most.
    """
    low, high = budget.tokens, max(budget.tokens, len(at.full), at.early.predicted_length)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(take(at, middle)) <= budget.size else (low, middle - 1)
    return take(at, low)
