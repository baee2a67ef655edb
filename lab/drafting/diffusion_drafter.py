"""The diffusion model as a drafter: SpecDiff, algorithm 1 of arXiv 2408.05636, in its greedy form.

Responsible for drafts of gamma tokens in T denoising steps of this project's sampler. Not responsible for
their verification (see `speculation`) or for training (see `losses`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import MaskedModel
from lab.runs import denoise_steps


class DiffusionDrafter:
    """Drafts the tokens after a text with a masked diffusion model.

    config:   canvas is gamma, the most tokens of a draft; run_steps is T. A draft that is complete earlier
              ends there.
    vocab:    number of the target's logits. A draft ends before an id beyond it.
    passes:   denoising steps so far. computed: tokens that they ran, text and canvas.
    """

    def __init__(self, model: MaskedModel, config: DenoiseConfig, vocab: int) -> None:
        self._model, self._config, self._vocab = model, config, vocab
        self.passes = self.computed = 0

    def __call__(self, text: Sequence[int], wanted: int) -> list[int]:
        """At most `wanted` tokens; none where text and canvas exceed the model's context, or where the target
        has written an id that the model lacks.
        """
        size, mask = len(text) + self._config.canvas, self._model.mask_id
        if wanted < 1 or size > self._model.context or max(text) >= self._model.vocab_rows:
            return []
        for state in denoise_steps(self._model, [list(text)], self._config):
            self.passes += 1
            self.computed += size
            if not bool((state.ids == mask).any()):
                break
        ids: list[int] = state.ids[0, :wanted].tolist()
        end = next((i for i, id_ in enumerate(ids) if id_ >= self._vocab or id_ == mask), len(ids))
        return ids[:end]
