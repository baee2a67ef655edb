"""Commit rules against hand-computed values, and what must hold for every one of them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.commits import RULES
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from lab.canvases import denoise_steps

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


# Fréchet profile decoding.


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12), st.floats(0, 0.9), st.integers(0, 2**12 - 1))
def test_frechet_is_the_longest_run_that_is_probably_right(
    sure: list[float], margin: float, closed: int
) -> None:
    allowed = [not closed >> place & 1 for place in range(len(sure))]
    row = torch.tensor([sure], dtype=torch.float64)
    chosen = unmasking.within_frechet(row, torch.tensor([allowed]), margin)[0].tolist()
    ranked = sorted((p for p in range(len(sure)) if allowed[p]), key=lambda p: (-sure[p], p))
    expected: list[int] = []
    for place in ranked:
        together = sum(sure[p] for p in [*expected, place]) - len(expected)  # the paper's L_n
        if expected and together - (1 - sure[place]) <= margin + 1e-12:
            break
        expected.append(place)
    near = any(abs(1 - sum(1 - sure[p] for p in ranked[:n]) - (1 - sure[ranked[n - 1]]) - margin) < 1e-9
               for n in range(1, len(ranked) + 1))  # fmt: skip
    assert near or sorted(expected) == [place for place, taken in enumerate(chosen) if taken]


@pytest.mark.parametrize(("wrong", "count"), [(0.1, 8), (0.2, 3), (0.05, 18)])
def test_with_equal_confidences_it_is_the_factor_rule(wrong: float, count: int) -> None:
    row = torch.full((1, 30), 1 - wrong, dtype=torch.float64)
    every = torch.ones(1, 30, dtype=torch.bool)
    assert int(unmasking.within_frechet(row, every, 1e-6).sum()) == count  # (n + 1) * wrong < 1


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


# Every rule in the sampler.


@pytest.mark.parametrize("options", NEW_RULES)
def test_committed_tokens_never_change(model: DreamModel, options: dict[str, object]) -> None:
    canvases = [
        (state.ids.clone(), state.when.clone()) for state in denoise_steps(model, PROMPTS, config(**options))
    ]
    for (before, when), (after, later) in itertools.pairwise(canvases):
        kept = before != model.mask_id
        assert torch.equal(after[kept], before[kept])
        assert torch.equal(later[kept], when[kept])
        assert ((after != model.mask_id).sum(1) > kept.sum(1))[~kept.all(1)].all(), "a step commits something"


@pytest.mark.parametrize("options", NEW_RULES)
def test_company_changes_nothing(model: DreamModel, options: dict[str, object]) -> None:
    together = denoise(model, PROMPTS, config(**options))
    waves = denoise(model, PROMPTS, config(**options), batch=2)
    for prompt, *runs in zip(PROMPTS, together, waves, strict=True):
        (alone,) = denoise(model, [prompt], config(**options))
        for run in runs:
            assert (run.ids, run.when, run.predicted) == (alone.ids, alone.when, alone.predicted)
            assert run.steps == alone.steps


@pytest.mark.parametrize("options", NEW_RULES)
def test_going_on_equals_running_straight(model: DreamModel, options: dict[str, object]) -> None:
    *_, straight = denoise_steps(model, PROMPTS, config(**options))
    *_, state = denoise_steps(model, PROMPTS, config(steps=2, **options))
    kept = state.copy()
    for start in (state, kept):
        *_, end = denoise_steps(model, [], config(**options), start)
        assert end.results(model, config(**options)) == straight.results(model, config(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit": "eb", "order": "origin"}, "commit: expected a scored order beside eb"),
        ({"commit": "eb", "entropy_bound": math.nan}, "entropy bound: expected a finite number"),
        ({"commit": "frechet", "commit_margin": 1.0}, "commit margin: expected 0 or more, below 1"),
        ({"commit": "guess"}, "commit: expected auto, quota, eb, entropy, frechet"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        config(**options)


def test_every_rule_has_a_function() -> None:
    assert {
        config(commit=commit).rule for commit in ("auto", "quota", 0.5, "entropy", "eb", "frechet")
    } == set(RULES)
