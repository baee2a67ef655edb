"""An autoregressive checkpoint in PyTorch as an `Engine`: the target of a drafter in the cloud.

Responsible for the KV cache of one text. Not responsible for decoding (see `edge_runtime.decode`) or for
scoring whole texts in batches (see `selection.scorer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from edge_runtime.engine.base import Engine, Logits


class TorchEngine(Engine):
    """A causal model of transformers with `model` and `lm_head`, such as Qwen2ForCausalLM, in its own dtype.

    context: most tokens of the cache; None is what the model has positions for.
    """

    def __init__(self, net: Any, context: int | None = None) -> None:
        from transformers import DynamicCache

        super().__init__(
            context=context or int(net.config.max_position_embeddings), vocab=int(net.config.vocab_size)
        )
        self._net = net
        self._cache: Any = DynamicCache()

    @torch.no_grad()
    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        # After a rewind, and after a pass that failed, the cache is longer than the text.
        crop_cache(self._cache, self.length)
        tokens = torch.tensor([list(ids)], device=self._net.device)
        states = self._net.model(
            input_ids=tokens, past_key_values=self._cache, use_cache=True
        ).last_hidden_state[0]
        if not rows:
            return np.empty((0, self.vocab), np.float32)
        logits: Logits = self._net.lm_head(states[list(rows)]).float().cpu().numpy()
        return logits


def crop_cache(cache: Any, length: int) -> None:
    """Removes all but the first `length` tokens from a `transformers.DynamicCache`, of whose generations each
    means another thing by `crop`.

    Layer by layer: after an interrupted pass the first ones hold more tokens than the others.
    """
    for layer in cache.layers:
        surplus = layer.get_seq_length() - length
        if surplus > 0:
            layer.crop(-surplus)  # negative: tokens to remove, for both
