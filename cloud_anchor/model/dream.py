"""A masked diffusion model on stock Qwen2 modules: bidirectional attention, and each position's row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cloud_anchor.model.stock import StockModel
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import Batch
from cloud_anchor.sampling.step import MaskedAnswers


class DreamModel(StockModel):
    """The `MaskedModel` of every family with full attention."""

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> MaskedAnswers:
        return MaskedAnswers.start(self, prompts, config)

    def batch(self, prompts: Sequence[Sequence[int]], canvas: int) -> Batch:
        """Pads prompts to one length; raises RequestError for an empty one and for one that is too long."""
        return Batch.of(self, prompts, canvas, self.net.model.embed_tokens.weight.dtype)

    def states(self, batch: Batch, canvas: Tensor) -> Tensor:
        """Final hidden states [B, C, H]; row p is the one that predicts position p of `canvas` [B, C].

        With gradients where they are on: training runs what inference runs.
        """
        return self._run(torch.cat([batch.prompt, canvas], 1), batch.positions, batch.mask, canvas.shape[1])

    @torch.no_grad()
    def logits(self, batch: Batch, canvas: Tensor, wanted: Tensor) -> Tensor:
        """Logits [N, V] of the N positions that `wanted` (bool [B, C]) marks, in row-major order.

        The vocabulary projection runs on these positions only, not on the prompt or on committed positions.
        """
        logits: Tensor = self.net.lm_head(self.states(batch, canvas)[wanted])
        return logits

    @torch.no_grad()
    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Logits [B, keep, V] that predict the last `keep` positions (default: all) of `ids` [B, L],
        unpadded.

        Where the family shifts, position 0 has no predecessor and takes its own row, as in the published
        sampler.
        """
        logits: Tensor = self.net.lm_head(self._run(ids, None, None, ids.shape[1] if keep is None else keep))
        return logits

    def _run(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None, keep: int) -> Tensor:
        # The dictionary form reaches the layers as it is; anything else is combined with a causal mask.
        states: Tensor = self.net.model(
            input_ids=ids,
            attention_mask={"full_attention": mask},
            position_ids=positions,
            is_causal=False,
            use_cache=False,
        ).last_hidden_state
        length = ids.shape[1]
        if not self.family.shifted:
            return states[:, length - keep :]
        if keep < length:
            return states[:, length - keep - 1 : -1]
        return torch.cat([states[:, :1], states[:, :-1]], 1)
