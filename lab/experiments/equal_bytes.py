"""Controls of a payload: what at most as many bytes would be worth otherwise.

The edge model alone, the paper's anchors and their leading run; and, of as many tokens as a payload's bytes
hold, a prefix of the finished answer, tokens of it at random, and the first and the surest predictions of the
same unfinished run. All are filled by the payload's edge model, and all but the paper's are told the answer's
length, as the payload is. Not responsible for the payload or for tables (see `passes`, `length_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cloud_anchor.selection.edge_aware import largest_count
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
OF_THE_PREDICTIONS = (FIRST, SUREST)
"""Those of them that are told the predicted length; the others know the finished answer's."""

OF_THE_PAPER: Mapping[str, Callable[[Situation], AnchorSet]] = {ANCHORS: committed, LEADING: leading_run}
"""Controls from the run in the paper's order."""


def controls(case: Case, at: Situation, paper: Situation, size: int) -> dict[str, Record]:
    """Every control by name, each scored against the finished answer of its own run.

    at: the run whose payload has this size, in bytes. paper: the run in the paper's order, of as many passes.
    """

    def answer(anchors: AnchorSet, of: Situation) -> Record:
        judged = case.judged(case.fill(anchors).ids, of.full)
        return judged | {"sent": len(anchors), "bytes": case.size(anchors, extras=of.early.extras())}

    found = {ALONE: case.judged(case.alone().ids, at.full) | {"sent": 0, "bytes": 0}}
    found |= {name: answer(take(paper), paper) for name, take in OF_THE_PAPER.items()}
    for name, take in EQUAL.items():
        length = len(at.early.predicted_answer if name in OF_THE_PREDICTIONS else at.full)

        def told(
            count: int, take: Callable[[Situation, int], AnchorSet] = take, n: int = length
        ) -> AnchorSet:
            return replace(take(at, count), length=n)

        def fits(count: int, told: Callable[[int], AnchorSet] = told) -> bool:
            return case.size(told(count), extras=at.early.extras()) <= size

        found[name] = answer(told(largest_count(length, fits)), at)
    return found
