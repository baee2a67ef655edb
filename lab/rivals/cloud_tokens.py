"""The diffusion model as a model of the next token: what methods that talk token by token ask the cloud for.

Responsible for the prediction after a text, with everything behind it masked. Not responsible for who asks
(see `methods`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cloud_anchor.sampling.protocol import MaskedModel
from edge_runtime.engine.base import BaseEngine, Logits


class DiffusionEngine(BaseEngine):
    """An `Engine` whose row is a pass of the diffusion model: the text so far on the canvas, masks behind it.

    It keeps no state between passes. A row is a pass of its own over prompt and canvas, since the model sees
    both ways: k tokens are verified by k + 1 of them, in one batch.

    prompt: its number of tokens. canvas: positions of the answer.
    calls:  for each pass so far, its rows.
    """

    def __init__(self, model: MaskedModel, prompt: int, canvas: int) -> None:
        super().__init__(context=prompt + canvas, vocab=model.vocab_rows)
        self._model, self._prompt, self._canvas = model, prompt, canvas
        self.calls: list[int] = []

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        if not rows:
            return np.empty((0, self.vocab), np.float32)
        text = [*self._tokens, *ids]
        ends = [len(self._tokens) + row + 1 for row in rows]
        masks = [self._model.mask_id] * self._canvas
        answers = [(text[self._prompt : end] + masks)[: self._canvas] for end in ends]
        canvas = torch.tensor(answers, device=self._model.device)
        wanted = torch.zeros_like(canvas, dtype=torch.bool)
        for row, end in enumerate(ends):
            wanted[row, end - self._prompt] = True
        batch = self._model.batch([text[: self._prompt]] * len(ends), self._canvas)
        logits = self._model.without_unusable(self._model.logits(batch, canvas, wanted))
        self.calls.append(len(ends))
        found: Logits = logits.float().cpu().numpy()
        return found
