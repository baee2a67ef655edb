"""Choosing a gap's tokens with sight of the anchors behind it.

Greedy decoding writes a gap blind to what follows. Here candidates are ranked by their own log-likelihood
plus that of the anchors that follow: log P(gap | text) + log P(anchors | text, gap).

The greedy candidate is followed to its end first. After that a candidate is run only if what is known of it
is likelier than the best whole one, for whatever comes next can only lower it; so within `WIDTH` tokens a
place the best is found, unless the passes run out. Where the greedy choice explains the anchors nothing else
is run, and a gap costs what it costs without lookahead.

Knows how candidates are grown and ranked. Does not know the engine: it is given a way to run ids.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from edge_runtime.engine.base import Logits, log_total

WIDTH = 4
"""Tokens tried for each place of a gap."""

BEHIND = 8
"""Most anchors behind a gap that are scored."""

PASSES = 4
"""Most passes a search makes for each token of the gap."""

Run = Callable[[Sequence[int], Sequence[int]], Iterator[Logits]]
"""Runs ids after the text in one pass and gives the logits of rows, row i being what follows ids[i].

A row is valid until the next is asked for.
"""


class Candidate(NamedTuple):
    """Tokens of a gap from its beginning on.

    total: log-likelihood of all that is known of it: its tokens' scores, and the anchors' once it is whole.
    """

    total: float
    ids: tuple[int, ...]
    scores: tuple[float, ...]


class Choice(NamedTuple):
    """What a gap is filled with.

    scores, behind: log-likelihoods of the tokens and of the anchors behind them. following: float32[vocab]
    logits after the last of those anchors. greedy: whether greedy decoding had chosen the same.
    """

    ids: tuple[int, ...]
    scores: tuple[float, ...]
    behind: tuple[float, ...]
    following: Logits
    greedy: bool


def search(logits: Logits, size: int, anchors: Sequence[int], run: Run, barred: Sequence[int] = ()) -> Choice:
    """The likeliest `size` tokens between the text and these anchors, both at least one.

    logits: float32[vocab] after the text. barred: ids that no gap has. Makes `size` passes at least, and
    `size * PASSES` at most.
    """
    waiting: list[tuple[float, int, Candidate]] = []  # the likeliest first, of equals the older one
    age = count()

    def grow(parent: Candidate, after: Logits) -> list[Candidate]:
        """A candidate longer by each of the likely next tokens, the likeliest first."""
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

    def whole(candidate: Candidate) -> tuple[float, Choice]:
        """The candidate's total with the anchors', in one pass."""
        rows = run([*candidate.ids, *anchors], range(size - 1, size + len(anchors)))
        behind = []
        for anchor in anchors:
            after = next(rows)
            behind.append(float(after[anchor]) - log_total(after))
        choice = Choice(candidate.ids, candidate.scores, tuple(behind), next(rows).copy(), False)
        return candidate.total + sum(behind), choice

    first, *others = grow(Candidate(0.0, (), ()), logits)
    keep(others)
    while len(first.ids) < size:
        first, *others = grow(first, next(run(first.ids, [len(first.ids) - 1])))
        keep(others)
    best, choice = whole(first)
    passes = size
    while waiting and -waiting[0][0] > best and passes < size * PASSES:
        candidate = heapq.heappop(waiting)[2]
        passes += 1
        if len(candidate.ids) < size:
            keep(grow(candidate, next(run(candidate.ids, [len(candidate.ids) - 1]))))
            continue
        total, other = whole(candidate)
        if total > best:
            best, choice = total, other
    return choice._replace(greedy=choice.ids == first.ids)
