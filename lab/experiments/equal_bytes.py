"""Controls of a payload: what as many bytes would be worth otherwise.

The edge model alone, the paper's anchors and their leading run; and, of as many tokens as a payload sends or
of as many as its bytes hold where that is more, a prefix of the finished answer, tokens of it at random, and
the first and the surest predictions of the same unfinished run. All are filled by the payload's edge model.
Responsible for the measurement of one answer. Not responsible for the payload or for tables (see `passes`,
`length_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.denoised import Denoised
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.base import Engine
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
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.store import Record
from payload import AnchorSet, Shared, encode

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


class EqualBytes:
    """Measures the controls of one prompt's payloads, with the engine of the device."""

    def __init__(self, pipeline: Pipeline, engine: Engine, item: Item, full: Denoised, seed: int) -> None:
        """full: the finished run, the reference. seed: of the random controls."""
        self._pipeline, self._engine, self._item, self._full = pipeline, engine, item, full
        self._contract = pipeline.form.contract
        self._reference = self._text(full.answer)
        self._seed = sum(item.id.encode()) * 1_000_003 + seed
        self._told: dict[tuple[tuple[int, ...], tuple[int, ...], int | None], Record] = {}

    def alone(self) -> Record:
        """The edge model without anchors; it needs no payload."""
        nothing = AnchorSet.empty(self._full.canvas, self._contract)
        return self._filled(nothing) | {"sent": 0, "bytes": 0}

    def controls(self, early: Denoised, paper: Denoised, budget: Budget) -> dict[str, Record]:
        """Every control by name. early: the run whose payload has this budget; paper: of as many passes."""
        assert self._pipeline.scorer is not None  # a payload with a budget is edge-aware
        at = Situation(early, list(self._full.answer), self._contract, self._pipeline.scorer, self._seed)
        found = {ALONE: self.alone()}
        for name, take in OF_THE_PAPER.items():
            found[name] = self._answer(take(replace(at, early=paper)), paper)
        for name, equal in EQUAL.items():
            found[name] = self._answer(most_within(at, equal, budget, lambda a: self._size(a, early)), early)
        return found

    def _answer(self, anchors: AnchorSet, run: Denoised) -> Record:
        return self._filled(anchors) | {"sent": len(anchors), "bytes": self._size(anchors, run)}

    def _filled(self, anchors: AnchorSet) -> Record:
        """The device's text from these anchors, scored; the same anchors are filled once."""
        key = (anchors.positions, anchors.ids, anchors.length)
        if key not in self._told:
            options = FillOptions(score_anchors=False, max_tokens=self._full.canvas)
            tokens = fill(self._engine, self._full.prompt_ids, anchors, options)
            text = self._text([token.id for token in tokens])
            self._told[key] = {
                "right": float(is_right(self._item, text)),
                "f1": word_f1(text, self._reference),
            }
        return self._told[key]

    def _size(self, anchors: AnchorSet, run: Denoised) -> int:
        return len(encode(anchors, Shared(self._contract, run.prompt_ids), extras=run.extras()))

    def _text(self, ids: Sequence[int]) -> str:
        return self._pipeline.form.tokenizer.decode(list(ids))


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
