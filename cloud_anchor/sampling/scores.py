"""Scores of proposed tokens, by which positions are ordered for commits.

Responsible for one function per order; higher scores commit first. Not responsible for how many positions
commit (see `commits`). Dream's scores are computed after its filters, in the dtype of the logits, as
published. `confidence` is computed before them.

Reason for `confidence`: at temperature 0.2 and top-p 0.95 a position whose two likeliest tokens differ by a
factor of 1.8 has a nucleus of one token and an entropy of exactly 0. Such ties are broken by position, so the
order by entropy becomes left to right, and the earliest commits are a prefix instead of a skeleton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cloud_anchor.sampling.config import CONFIDENCE


@dataclass(frozen=True)
class Proposal:
    """The proposal of a pass for N masked positions.

    logits: [N, V], unfiltered. probabilities: [N, V] after the filters. ids: int64 [N].
    """

    logits: Tensor
    probabilities: Tensor
    ids: Tensor


Score = Callable[[Proposal], Tensor]
"""Scores [N] of a proposal; higher commits earlier."""


def maskgit_plus(proposal: Proposal) -> Tensor:
    """Probability of the proposed token (MaskGIT, arXiv 2202.04200, section 3.2)."""
    return proposal.probabilities.gather(-1, proposal.ids[:, None]).squeeze(1)


def entropy(proposal: Proposal) -> Tensor:
    """Negative entropy, sum of p log(p + 1e-10) (Dream, arXiv 2508.15487)."""
    return (proposal.probabilities * (proposal.probabilities + 1e-10).log()).sum(-1)


def confidence(proposal: Proposal) -> Tensor:
    """Log-probability of the proposed token in the unfiltered distribution, at temperature 1, in float32."""
    logits = proposal.logits.float()
    return logits.gather(-1, proposal.ids[:, None]).squeeze(1) - logits.logsumexp(-1)


ORDERS: Mapping[str, Score] = {
    "maskgit_plus": maskgit_plus,
    "entropy": entropy,
    CONFIDENCE: confidence,
}


def suppress_eos(masked: Tensor, proposed: Tensor, canvas: Tensor, ends: Tensor, length: Tensor) -> Tensor:
    """The masked positions that may commit, bool [B, C], with end markers held back.

    An end marker may commit at the answer's most likely length, where the token before it is committed and is
    none itself; where no word is left to commit, behind any committed word. Positions after a committed end
    are held back too. Where nothing else is left, all may commit.
    masked: bool [B, C]. proposed, canvas: int64 [B, C]. ends: int64 [E], the end markers. length: int64 [B].

    Otherwise the tail of the canvas commits first, as its end markers have the highest confidence: it uses up
    the steps and contributes no anchors. And an answer would end at the first sentence after which an end is
    likelier than each of many continuations.
    """
    committed_end = torch.isin(canvas, ends) & ~masked
    after_end = committed_end.cumsum(1) > 0
    committed_word = ~masked & ~committed_end
    opens = torch.ones_like(masked[:, :1])
    before_is_word = torch.cat([opens, committed_word[:, :-1]], 1)
    at_length = torch.arange(masked.shape[1], device=masked.device) == length[:, None]
    is_end = torch.isin(proposed, ends)
    inside = masked & ~after_end
    found = inside & (~is_end | (before_is_word & at_length))
    for free in (inside & (~is_end | before_is_word), masked):
        found = torch.where(found.any(1, keepdim=True), found, free)
    return found
