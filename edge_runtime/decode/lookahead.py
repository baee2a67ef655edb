"""Lookahead: a gap's tokens chosen together with the anchors after it.

Greedy decoding fills a gap without regard to what follows. Here candidates are ranked by their own
log-likelihood plus that of the anchors that follow: log P(gap | text) + log P(anchors | text, gap).

The search is best first. The greedy candidate is completed at once; after that a candidate is run only while
its log-likelihood so far is above that of the best complete one, since further tokens can only lower it. So
within `WIDTH` tokens per position the best candidate is found, unless the passes run out. Where the greedy
choice explains the anchors nothing else is run, and a gap costs what it costs without lookahead.

Responsible for expanding and ranking candidates. Not responsible for the engine: the caller passes a function
that runs ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from edge_runtime.engine.base import Logits, log_total

WIDTH = 4
"""Tokens tried at each position of a gap."""

MAX_SCORED_ANCHORS = 8
"""Most anchors after a gap that are scored."""

PASSES = 4
"""Most passes of a search per token of the gap."""

RunIds = Callable[[Sequence[int], Sequence[int]], Iterator[Logits]]
"""Runs ids after the text in one pass and yields the logits of rows; row i predicts the token after ids[i].

A row is valid until the next one.
"""


class Candidate(NamedTuple):
    """The first tokens of a gap.

    total: log-likelihood so far: of its tokens, and once it is complete of the anchors as well.
    """

    total: float
    ids: tuple[int, ...]
    scores: tuple[float, ...]


class Choice(NamedTuple):
    """The tokens chosen for a gap.

    scores, anchor_scores: log-likelihoods of the tokens and of the anchors after them.
    next_logits: float32[vocab] logits after the last of those anchors.
    greedy:      True where greedy decoding would have chosen the same.
    """

    ids: tuple[int, ...]
    scores: tuple[float, ...]
    anchor_scores: tuple[float, ...]
    next_logits: Logits
    greedy: bool


def search(
    logits: Logits, size: int, anchors: Sequence[int], run: RunIds, barred: Sequence[int] = ()
) -> Choice:
    """The likeliest `size` tokens between the text and these anchors, at least one of each.

    logits: float32[vocab] after the text.
    barred: ids that a gap must not contain.

    Runs at least `size` and at most `size * PASSES` passes. Raises what `run` does.
    """
    waiting: list[tuple[float, int, Candidate]] = []  # the likeliest first, of equal ones the older
    age = count()

    def grow(parent: Candidate, after: Logits) -> list[Candidate]:
        """The candidate extended by each of the likeliest next tokens, the likeliest first."""
        allowed = after.copy()
        allowed[list(barred)] = -np.inf
        total = log_total(after)
        children = []
        for _ in range(WIDTH):
            id_ = int(allowed.argmax())  # of equal ones the first, as in greedy decoding
            allowed[id_] = -np.inf
            score = float(after[id_]) - total
            children.append(Candidate(parent.total + score, (*parent.ids, id_), (*parent.scores, score)))
        return children

    def keep(candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            heapq.heappush(waiting, (-candidate.total, next(age), candidate))

    def complete(candidate: Candidate) -> tuple[float, Choice]:
        """The total of a complete candidate with the anchors, in one pass."""
        rows = run([*candidate.ids, *anchors], range(size - 1, size + len(anchors)))
        anchor_scores = []
        for anchor in anchors:
            after = next(rows)
            anchor_scores.append(float(after[anchor]) - log_total(after))
        choice = Choice(candidate.ids, candidate.scores, tuple(anchor_scores), next(rows).copy(), False)
        return candidate.total + sum(anchor_scores), choice

    first, *others = grow(Candidate(0.0, (), ()), logits)
    keep(others)
    while len(first.ids) < size:
        first, *others = grow(first, next(run(first.ids, [len(first.ids) - 1])))
        keep(others)
    best, choice = complete(first)
    passes = size
    while waiting and -waiting[0][0] > best and passes < size * PASSES:
        candidate = heapq.heappop(waiting)[2]
        passes += 1
        if len(candidate.ids) < size:
            keep(grow(candidate, next(run(candidate.ids, [len(candidate.ids) - 1]))))
            continue
        total, other = complete(candidate)
        if total > best:
            best, choice = total, other
    return choice._replace(greedy=choice.ids == first.ids)
