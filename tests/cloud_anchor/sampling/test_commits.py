"""Commit rules against hand-computed values, and what must hold for every one of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.sampling import guide as guides
from cloud_anchor.sampling import unmasking
from cloud_anchor.sampling.commits import RULES
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.guide import Candidates, Span, SpanScores, multiply
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.scorer import EngineScorer, TorchScorer
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_engine import OrtEngine
from lab.canvases import canvas_at, denoise_steps

PROMPTS = [[5, 9, 17, 80, 3], [44, 2], [7, 7, 8, 120, 61, 33, 90, 14, 250]]
NEW_RULES: list[dict[str, object]] = [
    {"commit": "eb", "entropy_bound": 2.0},
    {"commit": "eb", "order": "entropy", "entropy_bound": 4.0, "temperature": 0.8},
    {"commit": "frechet", "commit_margin": 0.0},
    {"commit": "verify", "commit_depth": 3, "commit_probability": 0.01},
    {"commit": "apd", "commit_weight": 0.9},
    {"commit": "product", "commit_weight": 0.3, "commit_probability": 0.05},
]


@pytest.fixture(scope="module")
def model(dream_folder: Path) -> DreamModel:
    return load_model(str(dream_folder), device="cpu")


@pytest.fixture(scope="module")
def guide(edge_bundle: Path, model: DreamModel) -> EngineScorer:
    bundle = Bundle.open(edge_bundle)
    model.adopt(bundle.contract)
    return EngineScorer(OrtEngine.open(bundle, threads=1), bundle.contract.eos_ids)


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


# Adaptive parallel decoding.


@pytest.mark.parametrize(
    ("agrees", "masked", "end", "expected"),
    [
        ("0110", "1111", "0000", "1110"),  # the first open position in any case
        ("1011", "1111", "0000", "1000"),
        ("1110", "0111", "0000", "0110"),  # committed ones are passed
        ("1111", "1011", "0000", "1011"),
        ("1111", "1111", "0100", "1100"),  # nothing behind an end that is accepted
        ("1111", "0111", "0100", "0100"),
        ("0000", "0011", "0100", "0011"),  # all that is behind the end of the answer
        ("1111", "0000", "0000", "0000"),
    ],
)
def test_left_to_right_acceptance_by_hand(agrees: str, masked: str, end: str, expected: str) -> None:
    rows = [torch.tensor([[digit == "1" for digit in text]]) for text in (agrees, masked, end, expected)]
    assert torch.equal(unmasking.leading(*rows[:3]), rows[3])


# The product.


def logs(*values: float) -> torch.Tensor:
    return torch.tensor([values]).log()


def test_product_by_hand() -> None:
    """Two words and two end markers as candidates, 0.1 of p_D and 0.2 of p_AR elsewhere."""
    candidates = Candidates(torch.tensor([[4, 7, 20, 21]]), logs(0.5, 0.3, 0.08, 0.02), 2)
    guide = logs(0.1, 0.6, 0.06, 0.04)  # an end: 0.1
    for weight in (0.0, 0.5, 1.0, 2.0):
        weights = [0.5 * 0.1**weight, 0.3 * 0.6**weight, 0.08 * 0.1**weight, 0.02 * 0.1**weight]
        total = sum(weights) + 0.1 * 0.2**weight
        found, best = multiply(candidates, guide, torch.tensor([True]), 1.0, weight)
        torch.testing.assert_close(found.exp(), torch.tensor([weights]) / total)
        assert best.item() == weights.index(max(weights))
    # APD's: p_D^R p_AR^(1 - R).
    weights = [0.5**0.7 * 0.1**0.3, 0.3**0.7 * 0.6**0.3, 0.08**0.7 * 0.1**0.3, 0.02**0.7 * 0.1**0.3]
    total = sum(weights) + 0.1**0.7 * 0.2**0.3
    found, best = multiply(candidates, guide, torch.tensor([True]), 0.7, 0.3)
    torch.testing.assert_close(found.exp(), torch.tensor([weights]) / total)
    assert best.item() == 1
    # A position that the guide has not scored has the diffusion model's own.
    found, best = multiply(candidates, guide, torch.tensor([False]), 0.7, 0.3)
    torch.testing.assert_close(found, candidates.logprob)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1.0, 0.0), (1.0, 0.3), (1.0, 3.0), (0.7, 0.3), (0.0, 1.0), (1.0, 1.0)]),
)
def test_product_is_never_too_sure(seed: int, weights: tuple[float, float]) -> None:
    """Against the product over the whole vocabulary; the same where all words are candidates."""
    generator = torch.Generator().manual_seed(seed)
    own, other = (3 * torch.randn(6, 40, generator=generator) for _ in range(2))
    ends = torch.tensor([37, 39])
    guide = other.log_softmax(-1)
    end = guide[:, ends].logsumexp(-1, keepdim=True)
    whole = weights[0] * own.log_softmax(-1) + weights[1] * guide.index_copy(1, ends, end.expand(-1, 2))
    whole = whole.log_softmax(-1)
    for count in (4, 40):
        candidates = Candidates.of(own, ends, count)
        scored = torch.ones(6, dtype=torch.bool)
        found, _ = multiply(candidates, guide.gather(1, candidates.ids), scored, *weights)
        real = candidates.logprob > -torch.inf
        expected = whole.gather(1, candidates.ids)
        assert (found[real] <= expected[real] + 1e-4).all()
        if count == 40:
            torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=1e-4)


# Every rule in the sampler.


def test_without_weight_the_product_is_the_confidence_threshold(
    model: DreamModel, guide: EngineScorer
) -> None:
    for sure in (0.004, 0.006, 0.01, 0.9):
        plain = denoise(model, PROMPTS, config(commit=sure))
        options = config(commit="product", commit_weight=0.0, commit_probability=sure)
        guided = denoise(model, PROMPTS, options, guide=guide)
        for one, other in zip(plain, guided, strict=True):
            assert one.history == other.history
            assert (one.predicted, one.predicted_length) == (other.predicted, other.predicted_length)
            assert other.confidence == pytest.approx(one.confidence, abs=1e-5)
            assert (one.guide_passes, other.guide_passes) == (0, other.steps)


def test_a_weight_changes_commits(model: DreamModel, guide: EngineScorer) -> None:
    histories = [
        [
            run.history
            for run in denoise(
                model,
                PROMPTS,
                config(commit="product", commit_weight=weight, commit_probability=0.01),
                guide=guide,
            )
        ]
        for weight in (0.0, 2.0)
    ]
    assert histories[0] != histories[1]


def test_apd_with_all_weight_on_the_diffusion_model_takes_its_draft(
    model: DreamModel, guide: EngineScorer
) -> None:
    (run,) = denoise(model, PROMPTS[:1], config(commit="apd", commit_weight=1.0), guide=guide)
    (first,) = denoise(model, PROMPTS[:1], config(commit="apd", commit_weight=1.0, steps=1), guide=guide)
    assert len(first.history[0].positions) > 1 or first.first_end == 0
    assert run.history[0] == first.history[0]


def test_apd_commits_from_left_to_right(model: DreamModel, guide: EngineScorer) -> None:
    for run in denoise(model, PROMPTS, config(commit="apd", commit_weight=0.5), guide=guide):
        places = [position for commit in run.history for position in commit.positions]
        assert places == sorted(places)


@pytest.mark.parametrize("options", NEW_RULES)
def test_committed_tokens_never_change(
    model: DreamModel, guide: EngineScorer, options: dict[str, object]
) -> None:
    canvases = [
        (state.ids.clone(), state.when.clone())
        for state in denoise_steps(model, PROMPTS, config(**options), guide=guide)
    ]
    for (before, when), (after, later) in itertools.pairwise(canvases):
        kept = before != model.mask_id
        assert torch.equal(after[kept], before[kept])
        assert torch.equal(later[kept], when[kept])
        assert ((after != model.mask_id).sum(1) > kept.sum(1))[~kept.all(1)].all(), "a step commits something"


@pytest.mark.parametrize("options", NEW_RULES)
def test_company_changes_nothing(model: DreamModel, guide: EngineScorer, options: dict[str, object]) -> None:
    together = denoise(model, PROMPTS, config(**options), guide=guide)
    waves = denoise(model, PROMPTS, config(**options), batch=2, guide=guide)
    for prompt, *runs in zip(PROMPTS, together, waves, strict=True):
        (alone,) = denoise(model, [prompt], config(**options), guide=guide)
        for run in runs:
            assert (run.ids, run.when, run.predicted) == (alone.ids, alone.when, alone.predicted)
            assert (run.steps, run.guide_passes) == (alone.steps, alone.guide_passes)
            assert run.draft_rows == alone.draft_rows


@pytest.mark.parametrize("options", NEW_RULES)
def test_going_on_equals_running_straight(
    model: DreamModel, guide: EngineScorer, options: dict[str, object]
) -> None:
    *_, straight = denoise_steps(model, PROMPTS, config(**options), guide=guide)
    *_, state = denoise_steps(model, PROMPTS, config(steps=2, **options), guide=guide)
    kept = state.copy()
    for start in (state, kept):
        *_, end = denoise_steps(model, [], config(**options), start, guide)
        assert end.results(model, config(**options)) == straight.results(model, config(**options))


def test_the_guide_in_pytorch_commits_the_same(
    model: DreamModel, guide: EngineScorer, edge_bundle: Path
) -> None:
    bundle = Bundle.open(edge_bundle)
    torch_guide = TorchScorer.of_bundle(bundle, edge_bundle.parent / "checkpoint", "cpu")
    options = config(commit="product", commit_weight=1.0, commit_probability=0.02)
    one, other = (denoise(model, PROMPTS, options, guide=each) for each in (guide, torch_guide))
    assert [run.history for run in one] == [run.history for run in other]


class RecordingGuide:
    """Every token equally probable; keeps what it is asked."""

    together, context = 2, None

    def __init__(self) -> None:
        self.calls: list[Sequence[Span]] = []

    def score(self, spans: Sequence[Span]) -> list[SpanScores]:
        self.calls.append(spans)
        found = []
        for span in spans:
            assert span.candidates is not None
            blank = np.zeros(len(span.text), np.float32)
            tokens = len(span.prompt) + len(span.text) - 1
            uniform = np.full(span.candidates.shape, -math.log(300), np.float32)
            found.append(
                SpanScores(np.zeros(len(blank), np.int64), blank, blank, blank, blank > 0, tokens, uniform)
            )
        return found


def test_one_pass_of_the_guide_a_step(model: DreamModel, guide: EngineScorer) -> None:
    """Over the prompt and the draft: all rows of a step together, as many as the guide takes."""
    fake = RecordingGuide()
    runs = denoise(model, PROMPTS, config(commit="product", steps=3), guide=fake)
    assert [len(call) for call in fake.calls] == [2, 1] * 3
    spans = [span for call in fake.calls for span in call]
    for run in runs:
        mine = [span for span in spans if tuple(span.prompt) == run.prompt_ids]
        assert len(mine) == run.guide_passes == 3
        assert run.guide_tokens == sum(len(span.prompt) + len(span.text) - 1 for span in mine)
        for step, span in enumerate(mine):
            before = canvas_at(run, step)
            drafted = list(span.text)[: 24 if len(span.text) == 24 else -1]
            for position, token in enumerate(drafted):
                assert before[position] in (token, model.mask_id), "a committed token is in every draft"
            assert span.candidates is not None
            assert span.candidates.shape == (len(span.text), guides.CANDIDATES + len(model.eos_ids))


def test_rules_that_need_a_guide_refuse_without(model: DreamModel) -> None:
    for rule in ("apd", "product"):
        with pytest.raises(RequestError, match=f"commit {rule}: expected an edge bundle"):
            denoise(model, PROMPTS, config(commit=rule))
    assert denoise(model, PROMPTS, config(commit="eb"))


def test_a_guide_of_another_vocabulary_is_refused(guide: EngineScorer) -> None:
    span = Span([1, 2], [3, 4], 0, np.array([[1], [10**6]]))
    with pytest.raises(RequestError, match="expected an edge model with the diffusion model's vocabulary"):
        guide.score([span])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit": "apd", "commit_weight": 1.5}, "commit weight: expected 0 to 1, found 1.5"),
        ({"commit": "product", "commit_weight": -1.0}, "commit weight: expected 0 to 10"),
        ({"commit": "eb", "commit_weight": 0.5}, "commit weight: expected commit apd or product"),
        ({"commit": "product", "temperature": 0.5}, "temperature: expected 0 beside commit product"),
        ({"commit": "apd", "order": "entropy"}, "order: expected confidence beside commit apd"),
        ({"commit": "eb", "order": "origin"}, "commit: expected a scored order beside eb"),
        ({"commit": "eb", "entropy_bound": math.nan}, "entropy bound: expected a finite number"),
        ({"commit": "product", "commit_probability": 0.0}, "commit probability: expected above 0"),
        ({"commit": "frechet", "commit_margin": 1.0}, "commit margin: expected 0 or more, below 1"),
        ({"commit": "guess"}, "commit: expected auto, quota, eb, entropy, frechet, verify, apd, product"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        config(**options)


def test_every_rule_has_a_function() -> None:
    assert {
        config(commit=commit).rule
        for commit in ("auto", "quota", 0.5, "entropy", "eb", "frechet", "verify", "apd", "product")
    } == set(RULES)
    assert replace(config(commit="apd"), commit_weight=0.25).exponents == (0.25, 0.75)
    assert config(commit="product").exponents == (1.0, 0.3)
