"""Losses that teach a block drafter to be accepted from left to right (arXiv 2606.11552).

Responsible for the three interventions as pure functions of a drafter's log-probabilities. Not responsible
for training (see `training`).

The paper's text was not at hand. Its abstract names the three terms; gamma 10, alpha_f 0.3, alpha_c 40, K 16
and the order in which they are stacked are those of a published summary of its tables. Position weights and
the focal term agree with published code (vllm-project/speculators: exp(-(k - 1) / gamma); the cross-entropy
of the first place whose likeliest token is not the target's, times its weight), except that this code
divides the focal term by the sum of the weights of the blocks with an error, not by the number of blocks. Of
the chain term no published code was found; how the paper scales the cross-entropy beside it is not known.

All functions take log_probs float [B, K, V], the drafter's log q_k over the vocabulary at each of the K
places of a block, and targets int64 [B, K], the tokens y_k that the target model writes there. Each returns
one number, a mean over the blocks. valid: bool [B, K], the places before the answer's end, a prefix of each
block and at least its first place; None for all. Other places count nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

FOCAL_WEIGHT = 0.3
"""alpha_f of the first-error focal term."""

CHAIN_WEIGHT = 40.0
"""alpha_c of the chain term, for blocks of 16."""


def position_weights(places: int, gamma: float) -> Tensor:
    """w_k = exp(-(k - 1) / gamma) for k = 1 to `places`: float32 [K].

    An error at an early place discards all that follows, so it weighs more. gamma: the place at which the
    weight has fallen to 1/e of the first one's, above 0.
    """
    if not gamma > 0:
        raise ValueError(f"gamma: expected a number above 0, found {gamma}")
    return torch.exp(-torch.arange(places, dtype=torch.float32) / gamma)


def weighted_cross_entropy(
    log_probs: Tensor, targets: Tensor, weights: Tensor | None = None, valid: Tensor | None = None
) -> Tensor:
    """sum_k w_k * (-log q_k(y_k)) / sum_k w_k; without weights the mean over the places."""
    loss = -_of_targets(log_probs, targets)
    weights = torch.ones_like(loss) if weights is None else weights.to(loss).expand(loss.shape)
    if valid is not None:
        weights = weights * valid
    return ((loss * weights).sum(1) / weights.sum(1)).mean()


def first_error_focal(
    log_probs: Tensor, targets: Tensor, weights: Tensor | None = None, valid: Tensor | None = None
) -> Tensor:
    """w_k* * (-log q_k*(y_k*)) at k* = the first k with argmax q_k != y_k; 0 for a block without an error.

    k* is where greedy verification breaks the draft: only this place decides how many tokens are accepted.
    """
    chosen = -_of_targets(log_probs, targets)
    if weights is not None:
        chosen = chosen * weights.to(chosen)
    wrong = log_probs.argmax(-1) != targets
    if valid is not None:
        wrong = wrong & valid
    first = wrong & (wrong.cumsum(1) == 1)
    return (chosen * first).sum(1).mean()


def chain_length(log_probs: Tensor, targets: Tensor, valid: Tensor | None = None) -> Tensor:
    """R = 1 / (K - 1) * sum_{k<K} exp(sum_{j<=k} log q_j(y_j)): the expected share of a block accepted.

    The probability that a draft drawn from q has its first k tokens right is the product of theirs; summed
    over k < K that is the expected length of the right prefix, without the last place. To be made large.
    """
    places = targets.shape[1]
    if places < 2:
        raise ValueError(f"chain length: expected blocks of at least 2 tokens, found {places}")
    right = _of_targets(log_probs, targets).cumsum(1).exp()
    if valid is not None:
        right = right * valid
    return (right[:, :-1].sum(1) / (places - 1)).mean()


def drafter_loss(
    log_probs: Tensor,
    targets: Tensor,
    *,
    valid: Tensor | None = None,
    gamma: float | None = None,
    focal: float = 0.0,
    chain: float = 0.0,
) -> Tensor:
    """weighted_cross_entropy + focal * first_error_focal - chain * chain_length; each term is optional.

    gamma: None weighs all places alike. focal, chain: 0, or `FOCAL_WEIGHT` and `CHAIN_WEIGHT`.
    """
    weights = None if gamma is None else position_weights(targets.shape[1], gamma)
    loss = weighted_cross_entropy(log_probs, targets, weights, valid)
    if focal:
        loss = loss + focal * first_error_focal(log_probs, targets, weights, valid)
    if chain:
        loss = loss - chain * chain_length(log_probs, targets, valid)
    return loss


def _of_targets(log_probs: Tensor, targets: Tensor) -> Tensor:
    """log q_k(y_k): float [B, K]. Raises ValueError where the shapes do not belong together."""
    if log_probs.dim() != 3 or log_probs.shape[:2] != targets.shape:
        raise ValueError(
            f"expected log-probabilities [B, K, V] and targets [B, K], "
            f"found {tuple(log_probs.shape)} and {tuple(targets.shape)}"
        )
    return log_probs.gather(-1, targets[..., None])[..., 0]
