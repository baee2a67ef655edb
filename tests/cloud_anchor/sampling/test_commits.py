"""Commit rules against hand-computed values, and what must hold for every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.config import DenoiseConfig

PROMPTS = [[5, 9, 17, 80, 3], [44, 2], [7, 7, 8, 120, 61, 33, 90, 14, 250]]
NEW_RULES: list[dict[str, object]] = [
    {"commit": "eb", "entropy_bound": 2.0},
    {"commit": "eb", "order": "entropy", "entropy_bound": 4.0, "temperature": 0.8},
    {"commit": "frechet", "commit_margin": 0.0},
]


@pytest.fixture(scope="module")
def model(dream_folder: Path) -> DreamModel:
    return load_model(str(dream_folder), device="cpu")


def config(**options: object) -> DenoiseConfig:
    return DenoiseConfig(**{"canvas": 24, "total_steps": 10, **options})  # type: ignore[arg-type]


# Entropy-bounded unmasking.


def test_entropy_bound_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.8, 0.7, 0.6]])
    entropy = torch.tensor([[0.2, 9.0, 0.1, 0.5, 0.4]])
    # Best first: positions 0, 2, 3, 4, 1, with sum less max 0, 0.1, 0.3, 0.7 (1.2 - 0.5), 1.2.
    every = torch.ones(1, 5, dtype=torch.bool)
    for bound, expected in (
        (0.0, [0]),
        (0.1, [0, 2]),
        (0.3, [0, 2, 3]),
        (0.69, [0, 2, 3]),
        (0.71, [0, 2, 3, 4]),
    ):
        chosen = unmasking.within_entropy(scores, entropy, every, bound + 1e-6)
        assert chosen[0].nonzero().flatten().tolist() == expected, bound
    assert unmasking.within_entropy(scores, entropy, every, 2.0).all()
    allowed = torch.tensor([[False, True, False, True, False]])
    chosen = unmasking.within_entropy(scores, entropy, allowed, 0.4)
    assert chosen[0].tolist() == [False, False, False, True, False]
    assert not unmasking.within_entropy(scores, entropy, ~every, 5.0).any()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_entropy_bound_is_the_longest_run(seed: int, bound: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, entropy = torch.rand(3, 12, generator=generator), torch.rand(3, 12, generator=generator)
    allowed = torch.rand(3, 12, generator=generator) < 0.7
    chosen = unmasking.within_entropy(scores, entropy, allowed, bound)
    for row in range(3):
        best = sorted(allowed[row].nonzero().flatten().tolist(), key=lambda p: -float(scores[row, p]))
        count = min(1, len(best))
        while count < len(best):
            part = [float(entropy[row, p]) for p in best[: count + 1]]
            if abs(sum(part) - max(part) - bound) < 1e-5:
                return  # rounding may decide either way
            if sum(part) - max(part) > bound:
                break
            count += 1
        assert set(chosen[row].nonzero().flatten().tolist()) == set(best[:count])
