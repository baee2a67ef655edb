"""The record of the canvases: what the model was shown, and commits that are taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from lab import canvases
from lab.canvases import reversals, shown
from lab.runs import run_once

M = 9
CONFIG = DenoiseConfig(canvas=12, total_steps=6, seed=1)


def _canvases(*rows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor(row) for row in rows]


def test_a_token_that_changes_or_is_masked_again_is_counted_by_row() -> None:
    kept = _canvases([[M, M], [M, M]], [[1, M], [M, 2]], [[1, 3], [4, 2]])
    assert reversals(kept, M) == [0, 0]
    other = _canvases([[M, M], [M, M]], [[1, M], [M, 2]], [[5, 3], [4, M]], [[1, 3], [4, 2]])
    assert reversals(other, M) == [2, 1]


def test_a_sampler_that_rewrites_a_commit_is_found(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(dream_folder), device="cpu")
    (right,) = run_once(model, [[5, 9]], CONFIG, [6])
    assert right.reversals == 0
    advance = canvases.advance

    def wrong(model: Any, state: Any, *rest: Any) -> None:
        advance(model, state, *rest)
        if state.steps[0] == 4:
            done = (state.when[0] > 0).nonzero()[0, 0]
            state.ids[0, done] = model.mask_id  # in place: an alias of the canvas would not show it
            state.when[0, done] = 0

    monkeypatch.setattr(canvases, "advance", wrong)
    (found,) = run_once(model, [[5, 9]], CONFIG, [6])
    assert found.reversals == 1


def test_the_model_is_left_as_it_was(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    with pytest.raises(ValueError, match="inside"), shown(model):
        raise ValueError("inside")
    assert "logits" not in vars(model)
