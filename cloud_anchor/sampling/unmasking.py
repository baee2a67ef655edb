"""Unmasking: from scores to the masked positions that commit in a step.

Responsible for turning a share or a threshold into positions. Not responsible for the tokens there. All
functions work on [B, C], one answer per row; ties go to the lower position.
"""

from __future__ import annotations

import torch
from torch import Tensor


def quotas(masked: Tensor, shares: Tensor, *, up: bool = False) -> Tensor:
    """The number of positions per row that commit, int64 [B]: the integer part of masked count times share.

    up: rounded up instead.

    masked: bool [B, C]. shares: float32 [B]; a share of 1 takes all that is left.
    """
    exact = masked.sum(1).to(torch.float32) * shares.to(masked.device)
    # A product that is whole in exact arithmetic may be a little more in float32.
    return (exact - 1e-3).ceil().to(torch.long) if up else exact.to(torch.long)


def best(scores: Tensor, allowed: Tensor, quota: Tensor) -> Tensor:
    """The `quota` [B] best-scored of the allowed positions of each row, bool [B, C].

    The sort is stable, so ties go to the lower position. On CUDA the published sampler's topk does the same;
    on a CPU its ties are in no defined order.
    """
    return allowed & (_ranks(scores.masked_fill(~allowed, -torch.inf)) < quota[:, None])


def above(scores: Tensor, allowed: Tensor, threshold: float) -> Tensor:
    """Every allowed position with a score of at least `threshold`, and the best one in any case.

    Fast-dLLM's parallel decoding (arXiv 2505.22618, section 3.3): tokens that are each nearly certain are
    nearly independent, so they may commit in one step.
    """
    one = torch.ones(len(scores), dtype=torch.long, device=scores.device)
    return best(scores, allowed, one) | (allowed & (scores >= threshold))


def lottery(
    scores: list[Tensor], quota: list[int], temperature: float, generators: list[torch.Generator]
) -> list[Tensor]:
    """For each row, `quota` indices drawn without replacement from softmax(score / temperature).

    scores: one 1-D tensor per row, -inf where nothing may commit. One random number is drawn per entry, so a
    row covers prompt and canvas to equal the published sampler's.
    """
    return [
        torch.multinomial((score / temperature).softmax(-1), count, generator=generator)
        if count
        else torch.empty(0, dtype=torch.long, device=score.device)
        for score, count, generator in zip(scores, quota, generators, strict=True)
    ]


def flips(masked: Tensor, shares: list[float], generators: list[torch.Generator]) -> Tensor:
    """An independent draw per masked position, with the row's share as its probability, bool [B, C].

    The reverse process of absorbing diffusion (Austin et al., arXiv 2107.03006): Dream's `origin`.
    """
    flipped = torch.zeros_like(masked)
    for row, (share, generator) in enumerate(zip(shares, generators, strict=True)):
        count = int(masked[row].sum())
        flipped[row, masked[row]] = torch.rand(count, generator=generator, device=masked.device) < share
    return flipped


def _ranks(scores: Tensor) -> Tensor:
    """Ranks of the scores in each row, 0 for the highest: int64 [B, C]."""
    order = scores.sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)
