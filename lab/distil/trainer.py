"""Masked training of a model on its own answers.

Responsible for the loss and for the states of rows with an answer of its own; every other row is masked as in
ordinary training, and held to what the model said of it before. Not responsible for the loop (see
`lab.pairs.trainer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lab.distil.states import hidden
from lab.pairs.batches import TrainingBatch, mask
from lab.pairs.trainer import PairTrainer


class SelfDistillation(PairTrainer):
    """The training of a masked model on a curriculum that has its own answers in it.

    orders: the pass that found each token of an answer, by its tokens. before: the checkpoint folder at which
    it begins, whose distribution is `hold` of the target in every other row, and the right token the rest
    (learning without forgetting, arXiv 1606.09282).
    """

    def __init__(
        self,
        *given: Any,
        orders: Mapping[tuple[int, ...], tuple[int, ...]],
        before: Path,
        hold: float,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._orders, self._hold = orders, hold
        self.start_from(before)
        self._before = self.averaged().eval()

    def loss(self, batch: TrainingBatch) -> torch.Tensor:
        """Mean cross-entropy of the masked positions, in nats."""
        rng = np.random.default_rng([self.seed, self.step])
        ids, wanted = mask(batch, rng, self.mask_id)
        own = torch.zeros(len(wanted), dtype=torch.bool)
        for row, (start, end) in enumerate(zip(batch.start.tolist(), batch.end.tolist(), strict=True)):
            passes = self._orders.get(tuple(batch.ids[row, start:end].tolist()))
            if passes is not None:
                wanted[row] = hidden(start, end, wanted.shape[1], passes, rng)
                own[row] = True
        ids = torch.where(wanted, self.mask_id, batch.ids)
        logits, targets, weights = self.predictions(batch, ids, wanted)
        losses = F.cross_entropy(logits, targets, reduction="none")
        if self._hold and not own.all():
            held = ~own[:, None].expand_as(wanted)[wanted].to(self.device)
            soft = self._from_before(ids[~own], wanted[~own], logits[held])
            losses[held] = losses[held].lerp(soft, self._hold)
        return (losses * weights).sum() / weights.sum()

    def _from_before(self, ids: torch.Tensor, wanted: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Cross-entropy [N] of logits [N, V] with what the model said before at the positions `wanted`."""
        with torch.no_grad():
            said = self.logits_at(self._before.model, self._before.lm_head, ids, wanted).softmax(-1)
        return F.cross_entropy(logits, said, reduction="none")
