"""Lookahead: gaps that fit the anchors after them, against an exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.decode import lookahead
from edge_runtime.decode.forced import FillOptions, FillStats, Source, fill
from edge_runtime.decode.speculate import Speculator
from edge_runtime.engine.base import BaseEngine, Logits
from payload import AnchorSet

FREE = {1: 1.0, 2: 1.0, 9: 1.0}
MakeAnchors = Callable[..., AnchorSet]


class Chain(BaseEngine):
    """A model whose next token depends on the last one only: probability[last, next]."""

    def __init__(self, probability: dict[tuple[int, int], float], vocab: int = 15) -> None:
        super().__init__(context=256, vocab=vocab)
        self.table = np.full((vocab, vocab), -20.0, np.float32)
        for (last, following), p in probability.items():
            self.table[last, following] = np.log(p)

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        return self.table[[ids[row] for row in rows]]


DEAD_END = {(0, 1): 0.6, (0, 2): 0.4, (1, 3): 1.0, (2, 4): 0.9, (2, 3): 0.1, (4, 5): 1.0, (3, 5): 1.0}
"""After 0 the likelier 1 never leads to 4, the less likely 2 does."""


def test_a_choice_that_makes_the_anchor_impossible_is_not_taken(make_anchors: MakeAnchors) -> None:
    anchors = make_anchors({1: 4, 2: 5}, length=3)
    greedy = [t.id for t in fill(Chain(DEAD_END), [0], anchors)]
    assert greedy == [1, 4, 5]
    stats = FillStats()
    tokens = list(fill(Chain(DEAD_END), [0], anchors, FillOptions(lookahead=1), stats))
    assert [t.id for t in tokens] == [2, 4, 5]
    assert [t.source for t in tokens] == [Source.FILL, Source.ANCHOR, Source.ANCHOR]
    assert [t.logprob for t in tokens] == pytest.approx([np.log(0.4), np.log(0.9), 0.0], abs=1e-4)
    assert (stats.looked, stats.changed) == (1, 1)
    # The first pass, one for the greedy choice with the anchors, one for the other; nothing else can win.
    assert stats.passes == 3


def test_where_greedy_explains_the_anchors_no_pass_is_added(make_anchors: MakeAnchors) -> None:
    anchors = make_anchors({1: 3, 2: 5, 4: 3}, canvas=7, length=7)
    plain, seeing = FillStats(), FillStats()
    certain = {(0, 1): 1.0, (1, 3): 1.0, (3, 5): 1.0, (5, 1): 1.0}
    expected = list(fill(Chain(certain), [0], anchors, stats=plain))
    assert list(fill(Chain(certain), [0], anchors, FillOptions(lookahead=3), seeing)) == expected
    assert (seeing.looked, seeing.changed) == (2, 0)
    assert seeing.passes == plain.passes


PROBLEMS: dict[str, Any] = {
    "prompt": st.lists(st.integers(0, 14), min_size=1, max_size=6),
    "places": st.dictionaries(st.integers(0, 19), st.integers(0, 11), max_size=12),
    "length": st.none() | st.integers(20, 24),
    "scored": st.booleans(),
    "seed": st.integers(0, 300),
    "sight": st.integers(1, 4),
}


@given(**PROBLEMS)
@settings(max_examples=60)
def test_the_best_within_the_beam_is_chosen(
    make_engine: Callable[..., Any],
    make_anchors: MakeAnchors,
    logits_after: Callable[..., Logits],
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    scored: bool,
    seed: int,
    sight: int,
) -> None:
    """The end of every gap is what a search through all candidates of the beam finds."""
    sight = min(sight, 2)  # WIDTH ** 2 candidates are tried here
    anchors = make_anchors(places, canvas=24, length=length)
    options = FillOptions(score_anchors=scored, lookahead=sight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookahead, "PASSES", 1000)
        tokens = list(fill(make_engine(seed=seed), prompt, anchors, options))
    ids = [token.id for token in tokens]
    assert [t.id for t in tokens if t.position in places] == [
        places[p] for p in sorted(places) if p < len(ids)
    ]
    assert [t.position for t in tokens] == list(range(len(ids)))

    def scores(text: Sequence[int], more: Sequence[int]) -> list[float]:
        found = []
        for index, id_ in enumerate(more):
            logits = logits_after([*prompt, *text, *more[:index]], seed).astype(np.float64)
            found.append(logits[id_] - np.log(np.exp(logits).sum()))
        return found

    def likely(text: Sequence[int]) -> list[int]:
        logits = logits_after([*prompt, *text], seed).copy()
        logits[[12, 14]] = -np.inf
        return [int(i) for i in np.argsort(-logits, kind="stable")[: lookahead.WIDTH]]

    for end in places:
        begin = max([0, end - sight, *(place + 1 for place in places if place < end)])
        size = end - begin
        if not size:
            continue
        run = list(itertools.takewhile(places.__contains__, range(end, end + lookahead.MAX_SCORED_ANCHORS)))
        run = [places[place] for place in run]
        candidates: list[tuple[int, ...]] = [()]
        for _ in range(size):
            candidates = [(*c, id_) for c in candidates for id_ in likely([*ids[:begin], *c])]
        totals = {c: sum(scores(ids[:begin], [*c, *run])) for c in candidates}
        assert totals[tuple(ids[begin:end])] == pytest.approx(max(totals.values()), abs=1e-4)
    if scored:
        np.testing.assert_allclose([t.logprob for t in tokens], scores([], ids), rtol=1e-4, atol=1e-4)


@given(**PROBLEMS)
@settings(max_examples=60)
def test_guesses_and_a_used_cache_change_nothing(
    make_engine: Callable[..., Any],
    make_anchors: MakeAnchors,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    scored: bool,
    seed: int,
    sight: int,
) -> None:
    anchors = make_anchors(places, canvas=24, length=length)
    engine, stats = make_engine(seed=seed), FillStats()
    options = FillOptions(score_anchors=scored, lookahead=sight)
    expected = list(fill(engine, prompt, anchors, options, stats))
    guessing = FillOptions(score_anchors=scored, lookahead=sight, drafter=Speculator(FREE), max_rows=3)
    assert list(fill(engine, prompt, anchors, guessing)) == expected
    stream = fill(engine, prompt, anchors, options)
    for _ in itertools.islice(stream, 5):
        pass
    stream.close()  # type: ignore[attr-defined]
    assert list(fill(engine, prompt, anchors, options)) == expected
    gaps = sum(token.source is Source.FILL for token in expected)
    assert stats.passes <= 1 + gaps * lookahead.PASSES
    assert stats.changed <= stats.looked <= len(places)
