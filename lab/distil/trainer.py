"""Masked training of a model on its own answers, with certainty forced where it is right already.

Responsible for the loss and for the states of rows with an answer of its own; every other row is masked as in
ordinary training, and may be held to what the model said of it before. Not responsible for the loop (see
`lab.pairs.trainer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Qwen2ForCausalLM

from lab.distil.loss import surprise, uncertainty
from lab.distil.states import FILLED, device_fill, hidden, some_gaps
from lab.pairs.batches import TrainingBatch, mask
from lab.pairs.tokens import special_ids
from lab.pairs.trainer import PairTrainer


class SelfDistillation(PairTrainer):
    """The training of a masked model on a curriculum that has its own answers in it.

    orders: the pass that found each token of an answer, by its tokens. certainty: the weight of the entropy
    at positions where the model's best token is the right one already (dParallel, arXiv 2509.26488, certainty
    forcing; 1 in its code). edge: the edge model, by whose surprise a token's loss is weighed: one that it
    would write by itself counts `FLOOR`. fill: the edge model whose words stand in some gaps, of which it is
    taught the right ones all the same. before: the checkpoint folder of the model as it was, whose
    distribution is `hold` of the target in every other row, and the right token the rest (learning without
    forgetting, arXiv 1606.09282).
    """

    def __init__(
        self,
        *given: Any,
        orders: Mapping[tuple[int, ...], tuple[int, ...]],
        certainty: float,
        commit: float | None = None,
        edge: Qwen2ForCausalLM | None = None,
        fill: Qwen2ForCausalLM | None = None,
        before: Path | None = None,
        hold: float = 0.0,
        **named: Any,
    ) -> None:
        self._orders, self._certainty, self._edge, self._fill = orders, certainty, edge, fill
        self.commit, self._hold = commit, hold
        super().__init__(*given, **named)
        self._before: Qwen2ForCausalLM | None = None
        if before is not None:
            self._before = self.build().to(self.device).eval()
            self._load(self._before, before)

    def loss(self, batch: TrainingBatch) -> torch.Tensor:
        """Mean cross-entropy of the masked positions, and of the certain ones their entropy, in nats."""
        rng = np.random.default_rng([self.seed, self.step])
        ids, wanted = mask(batch, rng, self.mask_id)
        own = torch.zeros_like(wanted)
        for row, (start, end) in enumerate(zip(batch.start.tolist(), batch.end.tolist(), strict=True)):
            passes = self._orders.get(tuple(batch.ids[row, start:end].tolist()))
            if passes is not None:
                wanted[row] = hidden(start, end, wanted.shape[1], passes, rng)
                own[row] = True
        ids = torch.where(wanted, self.mask_id, batch.ids)
        if self._fill is not None:
            filled = (own.any(1) & (torch.from_numpy(rng.random(len(ids))) < FILLED)).nonzero()[:, 0]
            ids[filled] = self._with_fill(batch, ids, wanted, filled, rng)
        logits, targets, weights = self.predictions(batch, ids, wanted)
        if self._edge is not None:
            weights = weights * torch.where(own, self._surprise(batch), 1.0)[wanted].to(self.device)
        losses = F.cross_entropy(logits, targets, reduction="none")
        other = ~own.any(1)
        if self._before is not None and other.any():
            held = other[:, None].expand_as(wanted)[wanted].to(self.device)
            soft = self._from_before(ids[other], wanted[other], logits[held])
            losses[held] = losses[held].lerp(soft, self._hold)
        loss = (losses * weights).sum() / weights.sum()
        taught = own[wanted].to(self.device)
        if self._certainty and taught.any():
            entropy = uncertainty(logits[taught], targets[taught], weights[taught])
            loss = loss + self._certainty * entropy / weights[taught].sum()
        return loss

    def _from_before(self, ids: torch.Tensor, wanted: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Cross-entropy [N] of logits [N, V] with what the model said before at the positions `wanted`."""
        assert self._before is not None
        with torch.no_grad():
            said = self.logits_at(self._before.model, self._before.lm_head, ids, wanted).softmax(-1)
        return F.cross_entropy(logits, said, reduction="none")

    def _with_fill(
        self,
        batch: TrainingBatch,
        ids: torch.Tensor,
        wanted: torch.Tensor,
        rows: torch.Tensor,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """`ids` [R, L] of these rows, in which some of the answers' gaps hold what the edge model writes."""
        assert self._fill is not None
        at = torch.arange(ids.shape[1])[None]
        gaps = wanted[rows] & (at >= batch.start[rows, None]) & (at < batch.end[rows, None])
        never = special_ids(self.shape["pad_token_id"])
        written = device_fill(self._fill, batch.ids[rows].to(self.device), gaps.to(self.device), never).cpu()
        for row, gap in enumerate(gaps):
            gaps[row] = some_gaps(gap, rng)
        return torch.where(gaps, written, ids[rows])

    def _surprise(self, batch: TrainingBatch) -> torch.Tensor:
        """Float32 [B, L]: the weight of each token by the edge model's surprise."""
        assert self._edge is not None
        return surprise(self._edge, batch.ids.to(self.device)).cpu()
