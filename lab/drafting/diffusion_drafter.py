"""The diffusion model as a drafter: SpecDiff, algorithm 1 of arXiv 2408.05636.

Responsible for drafts of gamma tokens in T denoising steps of this project's sampler, and for the
distribution that each token is from. Not responsible for acceptance and the target's passes, which are those
of every drafter (`edge_runtime.decode`), or for training (see `losses`).

    drafter = DiffusionDrafter(model, DenoiseConfig(canvas=8, total_steps=2), vocab=target.vocab)
    options = FillOptions(drafter=drafter, max_draft=8, sampling=Sampling(1.0))
    tokens = fill(target, prompt_ids, AnchorSet.empty(256, contract), options)

**What is drawn.** Acceptance is exact where a token is from the stated q, given the tokens to its left and
all that q depends on. A drawn commit of an earlier step is not: its position was chosen by its confidence,
and tokens to its left came after it and with regard to it. So the commits of all steps but the last are a
function of the text (the sampler starts each draft from the seed of its configuration), which is q = 1. The
positions that the last step finds masked are drawn, independently, from that step's predictions. With T = 1
that is the whole draft, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.state import State
from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling, distribution
from lab.canvases import denoise_steps


class DiffusionDrafter:
    """Drafts the tokens after a text with a masked diffusion model.

    config:   canvas is gamma, the most tokens of a draft; run_steps is T. A draft that is complete earlier
              ends there. Commit rules that need an edge model are refused.
    vocab:    number of the target's logits. Ids beyond it are never drafted, nor is the mask.
    sampling: how the last step's tokens are drawn; its seed must not be the target's.
    passes:   denoising steps so far.

    Raises RequestError for a configuration that it cannot use.
    """

    def __init__(
        self, model: MaskedModel, config: DenoiseConfig, vocab: int, sampling: Sampling = GREEDY
    ) -> None:
        config.require_guide(present=False)
        if vocab < 1:
            raise RequestError(f"vocab: expected the number of the target's logits, found {vocab}")
        self._model = model
        self._config = config
        self._vocab = vocab
        self._sampling = sampling
        self._random = Acceptance(sampling)
        self.passes = 0

    def draft(self, text: Sequence[int], wanted: int) -> Draft:
        """At most `wanted` tokens; none where text and canvas exceed the model's context, or where the target
        has written an id that the model lacks.
        """
        wanted = min(wanted, self._config.canvas)
        if wanted < 1 or len(text) + self._config.canvas > self._model.context:
            return Draft(())
        if max(text) >= self._model.vocab_rows:
            return Draft(())
        state = self._denoised(text)
        drawn = self._last_predictions(state, wanted)
        ids: list[int] = []
        odds: list[Distribution] = []
        for position, committed in enumerate(state.ids[0, :wanted].tolist()):
            share = drawn.get(position)
            if share is None:
                if committed >= self._vocab or committed == self._model.mask_id:
                    break
                share = np.zeros(self._vocab)
                share[committed] = 1
            odds.append(share)
            ids.append(self._random.draw(share))
        return Draft(ids, odds)

    def observe(self, right: bool) -> None:
        """Nothing: gamma and T are given."""

    def _denoised(self, text: Sequence[int]) -> State:
        for state in denoise_steps(self._model, [list(text)], self._config):
            self.passes += 1
            if not bool((state.ids == self._model.mask_id).any()):
                break
        return state

    def _last_predictions(self, state: State, wanted: int) -> dict[int, Distribution]:
        """The distributions of the positions that the last step found masked, of the first `wanted`."""
        assert state.last is not None  # after a step
        masked = state.last.masked[0].nonzero()[:, 0].tolist()
        rows = sum(position < wanted for position in masked)
        logits = self._model.without_unusable(state.last.logits[:rows]).float().cpu().numpy()
        found = {}
        for position, row in zip(masked, logits, strict=False):
            share = np.zeros(self._vocab)
            usable = row[: self._vocab]
            share[: len(usable)] = distribution(usable, self._sampling)
            found[position] = share
        return found
