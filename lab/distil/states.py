"""States of an unfinished answer that a model is trained on: where a token is wanted.

Responsible for the choice of positions. Not responsible for rows (see `lab.pairs.batches`) or for the loss
(see `trainer`).

A state of a run says what the first passes have found, so early states are drawn most often: an empty
canvas, the tokens that the model itself found first (the pseudo-trajectory of d3LLM, arXiv 2601.07568), a
prefix (the semi-autoregressive masking of dParallel, arXiv 2509.26488), and tokens anywhere. The end markers
behind the answer are masked in nearly all of them, as a sampler commits these last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

EMPTY, TRAJECTORY, PREFIX, ANYWHERE = 0.3, 0.4, 0.15, 0.15
"""Shares of the states; they add up to 1."""
EARLY = 1.5
"""Power of the share of an answer that a trajectory has found: 1 for all states alike, more for earlier."""
OPEN_END = 0.5
"""Share of the states with tokens anywhere in which all end markers are masked."""


def hidden(start: int, end: int, length: int, passes: Sequence[int], rng: np.random.Generator) -> Tensor:
    """One state as bool [length]: True where a token of a row is masked.

    start: first position of the answer. end: the one behind it. passes: the pass that found each token of the
    answer, in ascending order of time; empty where that is not known.
    """
    size = end - start
    masked = torch.zeros(length, dtype=torch.bool)
    masked[end:] = True
    kind = rng.random()
    if kind < EMPTY:
        masked[start:] = True
        return masked
    kind -= EMPTY
    share = rng.random() ** (EARLY if kind < TRAJECTORY else 1.0)
    if kind < TRAJECTORY and passes:
        order = np.lexsort((rng.random(size), np.asarray(passes)))  # within a pass in any order
    elif TRAJECTORY <= kind < TRAJECTORY + PREFIX:
        order = np.arange(size)
    else:
        order = rng.permutation(size)
        if kind >= TRAJECTORY and rng.random() >= OPEN_END:
            masked[end:] = torch.from_numpy(rng.random(length - end) < 1 - share)
    masked[start:end] = True
    masked[start + torch.from_numpy(order[: int(share * size)])] = False
    return masked
