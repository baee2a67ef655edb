"""Token filters exactly as Dream's, in the dtype of the logits, and the draw of a token."""

from __future__ import annotations

import torch
from torch import Tensor

NUCLEUS_HEAD = 64
"""Tokens examined before a whole row is sorted: a peaked row's nucleus is smaller."""

SIMPLEX_TOLERANCE = 1e-6
"""Largest deviation from 1 of a row's sum for which it is drawn from (that of torch.distributions)."""


def filtered_probabilities(logits: Tensor, temperature: float, top_p: float | None) -> Tensor:
    """Probabilities [N, V] of logits [N, V], in their dtype: divided by temperature, then top-p.

    temperature 0 leaves the logits as they are (the choice is then the largest). A nucleus is the shortest
    leading run whose mass exceeds top_p, and never empty (Holtzman et al., arXiv 1904.09751).
    """
    if temperature > 0:
        logits = logits / temperature
    if top_p is not None and top_p < 1:
        logits = logits.masked_fill(~nucleus(logits, top_p), torch.finfo(logits.dtype).min)
    return logits.softmax(-1)


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """The tokens in each row's nucleus: bool [N, V] for logits [N, V].

    Only rows whose nucleus is larger than NUCLEUS_HEAD are sorted as a whole.
    """
    head = min(NUCLEUS_HEAD, logits.shape[-1])
    values, index = logits.topk(head)
    mass = (values - logits.logsumexp(-1, keepdim=True)).exp().cumsum(-1)
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, index, _leading(mass, top_p))
    wide = (mass[:, -1] <= top_p).nonzero().squeeze(1)
    if head < logits.shape[-1] and len(wide):
        values, index = logits[wide].sort(-1, descending=True)
        mass = values.softmax(-1).cumsum(-1)
        kept[wide] = torch.zeros_like(kept[wide]).scatter_(-1, index, _leading(mass, top_p))
    return kept


def _leading(mass: Tensor, top_p: float) -> Tensor:
    """Bool [N, K]: tokens up to the first whose cumulative mass [N, K], in falling order, exceeds top_p."""
    kept = torch.ones_like(mass, dtype=torch.bool)
    kept[:, 1:] = mass[:, :-1] <= top_p
    return kept


def draw(probabilities: Tensor, counts: list[int], generators: list[torch.Generator]) -> Tensor:
    """One token id per row, int64 [N], of probabilities [N, V].

    counts: rows per answer, in order; their sum is N. Each answer draws with its own generator, so its tokens
    do not depend on the rest of the batch.

    Published Dream draws with torch.distributions.Categorical, which refuses a row whose sum is off by 1e-6
    or more; Dream then takes the most probable token at all positions of the step. So does this function: in
    bfloat16 sums are that far off as soon as a nucleus has several tokens, and temperature then acts through
    the filters alone.
    """
    total = probabilities.sum(-1, keepdim=True)
    faulty = torch.split((total.squeeze(-1) - 1).abs() >= SIMPLEX_TOLERANCE, counts)
    refused = torch.stack([part.any() for part in faulty]).tolist()
    parts = zip(torch.split(probabilities, counts), torch.split(total, counts), strict=True)
    chosen = []
    for (row, row_total), refuse, generator in zip(parts, refused, generators, strict=True):
        if refuse or not len(row):
            chosen.append(row.argmax(-1))
        else:
            share = row / row_total
            chosen.append(torch.multinomial(share, 1, replacement=True, generator=generator).squeeze(1))
    return torch.cat(chosen)
