"""A run between its steps, and an independent record of its canvases: what the model was shown in every pass.

Responsible for runs step by step, for recording at the model's own entrance, and for what the record says
about committed tokens (section 2.1). Not responsible for the sampler, whose own account of its commits is
what the record is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import MaskedModel
from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.step import advance


def denoise_steps(
    model: MaskedModel,
    prompts: Sequence[Sequence[int]],
    config: DenoiseConfig,
    state: State | None = None,
) -> Iterator[State]:
    """Yields the state after each step, up to config.steps, of new answers or of those in `state`.

    For observing a run and for continuing one: the same object each time, advanced in place. Stop rules do
    not apply.
    """
    if not prompts and state is None:
        raise RequestError("expected at least one prompt, found none")
    state = state or State.start(model, prompts, config)
    while min(state.steps) < config.run_steps:
        advance(model, state, config)
        yield state


def canvas_at(run: Denoised, step: int) -> list[int]:
    """The canvas as it was after `step` steps."""
    pairs = zip(run.ids, run.when, strict=True)
    return [token if 0 < done <= step else run.mask_id for token, done in pairs]


@contextmanager
def shown(model: MaskedModel) -> Iterator[list[Tensor]]:
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
    changed = [((before != mask_id) & (before != after)).sum(1) for before, after in pairwise(canvases)]
    found: list[int] = torch.stack(changed).sum(0).tolist()
    return found
