"""States of an unfinished answer that a model is trained on: what stands where a token is wanted.

Responsible for the choice of positions, and for what a device would write in them. Not responsible for rows
(see `lab.pairs.batches`) or for the loss (see `trainer`).

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
from transformers import Qwen2ForCausalLM

EMPTY, TRAJECTORY, PREFIX, ANYWHERE = 0.3, 0.4, 0.15, 0.15
"""Shares of the states; they add up to 1."""
EARLY = 1.5
"""Power of the share of an answer that a trajectory has found: 1 for all states alike, more for earlier."""
OPEN_END = 0.5
"""Share of the states with tokens anywhere in which all end markers are masked."""
FILLED = 0.25
"""Share of the states in which gaps hold what the device would write, each gap with even odds."""


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


def some_gaps(gaps: Tensor, rng: np.random.Generator) -> Tensor:
    """About half of the gaps, each as a whole: bool [length] of bool [length]."""
    found = gaps.numpy()
    number = np.cumsum(found & ~np.concatenate([[False], found[:-1]]))  # of the gap, from 1 on
    return torch.from_numpy(found & (rng.random(len(found) + 1) < 0.5)[number])


@torch.no_grad()
def device_fill(edge: Qwen2ForCausalLM, ids: Tensor, gaps: Tensor, never: Sequence[int]) -> Tensor:
    """`ids` (int64 [B, L]) with what the edge model writes in `gaps` (bool [B, L], none in the first column).

    Greedy forced decoding, as on the device: each token given all before it, those of the gaps its own; of
    the tokens in `never`, such as end markers, none.
    """
    written, begin, cache = ids.clone(), 0, None
    columns = gaps.any(0).nonzero()[:, 0].tolist()
    for place in range(columns[0], columns[-1] + 1) if columns else ():
        found = edge(input_ids=written[:, begin:place], past_key_values=cache, use_cache=True)
        begin, cache, logits = place, found.past_key_values, found.logits[:, -1]
        logits[:, list(never)] = -torch.inf
        written[:, place] = torch.where(gaps[:, place], logits.argmax(-1), written[:, place])
    return written
