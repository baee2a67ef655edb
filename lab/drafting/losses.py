"""The loss that teaches a block drafter to be accepted from left to right (arXiv 2606.11552).

The paper's text was not at hand. Its abstract names the three terms; gamma 10, alpha_f 0.3, alpha_c 40, K 16
and the order in which they are stacked are those of a published summary of its tables. Position weights and
the focal term agree with published code (vllm-project/speculators: exp(-(k - 1) / gamma); the cross-entropy
of the first place whose likeliest token is not the target's, times its weight), which divides the focal
term by the sum of the weights of the blocks with an error, here by the number of blocks. Of the chain term no
published code was found; how the paper scales the cross-entropy beside it is not known.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

FOCAL_WEIGHT = 0.3
"""alpha_f of the first-error focal term."""

CHAIN_WEIGHT = 40.0
"""alpha_c of the chain term, for blocks of 16."""


def drafter_loss(
    log_probs: Tensor,
    targets: Tensor,
    valid: Tensor,
    *,
    gamma: float = math.inf,
    focal: float = 0.0,
    chain: float = 0.0,
) -> Tensor:
    """Cross-entropy + focal * the first error's - chain * the expected share accepted: means over the blocks.

    log_probs: float [B, K, V], log q_k of the drafter at each of the K places of a block. targets: int64
    [B, K], the tokens y_k that the target model writes there. valid: bool [B, K], the places before the
    answer's end, a prefix of each block and at least its first place; the others count nothing.

    The cross-entropy of place k weighs w_k = exp(-(k - 1) / gamma), for an error at an early place discards
    all that follows. The focal term is w_k * -log q_k(y_k) of the first place whose likeliest token is not
    the target's, where greedy verification breaks the draft. The chain term is
    R = 1 / (K - 1) * sum_{k<K} prod_{j<=k} q_j(y_j): the expected length of a drawn draft's right prefix,
    without the last place.
    """
    places = targets.shape[1]
    chosen = log_probs.gather(-1, targets[..., None])[..., 0]
    weights = torch.exp(-torch.arange(places) / gamma).to(chosen) * valid
    weighted = -chosen * weights
    loss = (weighted.sum(1) / weights.sum(1)).mean()
    if focal:
        wrong = valid & (log_probs.argmax(-1) != targets)
        first = wrong & (wrong.cumsum(1) == 1)
        loss = loss + focal * (weighted * first).sum(1).mean()
    if chain:
        right = chosen.cumsum(1).exp() * valid
        loss = loss - chain * (right[:, :-1].sum(1) / (places - 1)).mean()
    return loss
