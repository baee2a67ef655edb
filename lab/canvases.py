"""An independent record of a run's canvases: what the diffusion model was shown in every pass.

Responsible for recording at the model's own entrance, and for what the record says about committed tokens
(section 2.1). Not responsible for the sampler, whose own account of its commits is what the record is
compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.model.dream import DreamModel


@contextmanager
def shown(model: DreamModel) -> Iterator[list[Tensor]]:
    """While open, a copy of every canvas (int64 [B, C]) that the model is given, in the order of passes."""
    canvases: list[Tensor] = []
    logits = model.logits

    def recorded(batch: Any, canvas: Tensor, *rest: Any, **more: Any) -> Tensor:
        canvases.append(canvas.detach().cpu().clone())
        return logits(batch, canvas, *rest, **more)

    model.logits = recorded  # type: ignore[method-assign]
    try:
        yield canvases
    finally:
        del model.logits


def reversals(canvases: Sequence[Tensor], mask_id: int) -> list[int]:
    """By row, the times that a token of one canvas [B, C] is another token, or masked again, in the next."""
    return _by_row(canvases, [((a != mask_id) & (a != b)) for a, b in pairwise(canvases)])


def misbooked(canvases: Sequence[Tensor], when: Tensor, mask_id: int) -> list[int]:
    """By row, the positions whose step of commit in `when` (int [B, C], 0 for none) is not the canvases'.

    canvases: before step 1, after it, after step 2, and so on. A position that is not masked at the start
    has no step.
    """
    seen = torch.zeros_like(canvases[0])
    for step, canvas in enumerate(canvases):
        seen = torch.where((seen == 0) & (canvas != mask_id), step, seen)
    begun = canvases[0] != mask_id
    return _by_row(canvases, [(seen != when.cpu()) & ~begun])


def _by_row(canvases: Sequence[Tensor], marks: Sequence[Tensor]) -> list[int]:
    found = torch.zeros(len(canvases[0]), dtype=torch.long)
    for mark in marks:
        found += mark.sum(1)
    return [int(count) for count in found]
