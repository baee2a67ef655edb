"""SpecDiff: the target's own text and distribution, whatever a diffusion model drafts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import FAMILIES
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.state import State
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.acceptance import Draft, Sampling
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import BaseEngine
from edge_runtime.engine.ort_engine import OrtEngine
from lab.drafting.diffusion_drafter import DiffusionDrafter
from lab.drafting.torch_engine import TorchEngine
from payload import AnchorSet, Contract

SIZE, END, MASK = 6, 4, 6
CONTRACT = Contract(4, "0" * 64, {"<|im_end|>": END, "<|endoftext|>": 5}, "1" * 64)
NOTHING = AnchorSet.empty(64, CONTRACT)
PROMPT = [1, 3, 0]


def net(seed: int, vocab: int) -> Any:
    """A random Qwen2 model of few tokens."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocab,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.5,
        tie_word_embeddings=False,
    )
    return Qwen2ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def target() -> TorchEngine:
    return TorchEngine(net(1, SIZE))


@pytest.fixture(scope="module")
def diffusion() -> DreamModel:
    """Its vocabulary has a mask token and one more id that the target lacks."""
    model = DreamModel(net(2, SIZE + 2), FAMILIES["Dream"], MASK, frozenset({END, 5}), "random")
    special = {"<|endoftext|>": END, "<|im_start|>": MASK, "<|im_end|>": 5}
    model.adopt(Contract(4, "", special, ""))
    return model


def rows(engine: TorchEngine, text: list[int]) -> np.ndarray:
    """Logits after a text, of one pass without a cache."""
    with torch.no_grad():
        return engine._net(input_ids=torch.tensor([text])).logits[0, -1].double().numpy()


def test_the_engine_is_the_model_after_any_rewind(target: TorchEngine) -> None:
    random = np.random.default_rng(0)
    text: list[int] = []
    target.rewind(0)
    for _ in range(30):
        kept = int(random.integers(len(text) + 1)) if len(text) < 40 else 5
        target.rewind(kept)
        more = [int(i) for i in random.integers(0, SIZE, random.integers(1, 5))]
        text = [*text[:kept], *more]
        found = target.append(more, [0, len(more) - 1] if len(more) > 1 else [0])
        np.testing.assert_allclose(found[-1], rows(target, text), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[0], rows(target, text[: kept + 1]), rtol=1e-4, atol=1e-4)
    assert target.append([1], []).shape == (0, SIZE)


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("gamma", [1, 4, 7])
def test_greedy_is_the_targets_greedy_text(
    target: TorchEngine, diffusion: DreamModel, gamma: int, steps: int
) -> None:
    for prompt in ([1], PROMPT, [2, 2, 0, 3]):
        plain, stats = FillStats(), FillStats()
        expected = [t.id for t in fill(target, prompt, NOTHING, FillOptions(20), plain)]
        config = DenoiseConfig(canvas=gamma, total_steps=min(steps, gamma), commit="quota")
        drafter = DiffusionDrafter(diffusion, config, SIZE)
        options = FillOptions(20, drafter=drafter, max_draft=gamma)
        assert [t.id for t in fill(target, prompt, NOTHING, options, stats)] == expected
        assert stats.passes <= plain.passes
        assert drafter.passes <= config.run_steps * stats.passes


class Remembered(DiffusionDrafter):
    """Denoises each text once: a function of the text, so nothing else changes."""

    def _denoised(self, text: Sequence[int]) -> State:
        known: dict[tuple[int, ...], State] = self.__dict__.setdefault("known", {})
        if tuple(text) not in known:
            known[tuple(text)] = super()._denoised(text)
        return known[tuple(text)]


class RememberedTarget(BaseEngine):
    """The logits of a `TorchEngine`, computed once for each text."""

    def __init__(self, engine: TorchEngine) -> None:
        super().__init__(context=engine.context, vocab=engine.vocab)
        self.engine = engine
        self.known: dict[tuple[int, ...], Any] = {}

    def _run(self, ids: Sequence[int], wanted: Sequence[int]) -> Any:
        text = [*self.tokens, *ids]
        return np.stack([self._after(tuple(text[: self.length + row + 1])) for row in wanted])

    def _after(self, text: tuple[int, ...]) -> Any:
        if text not in self.known:
            self.engine.rewind(0)
            self.known[text] = self.engine.append(text, [len(text) - 1])[0].copy()
        return self.known[text]


def exactly(engine: TorchEngine, temperature: float, top_p: float | None) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(SIZE), repeat=3):
        end = next((i + 1 for i, token in enumerate(tokens) if token >= END), 3)
        answer, share = tokens[:end], 1.0
        if answer in found:
            continue
        for at, token in enumerate(answer):
            p = np.exp(rows(engine, [*PROMPT, *answer[:at]]) / temperature)
            p /= p.sum()
            if top_p:
                p = np.array([x if p[p > x].sum() <= top_p else 0 for x in p])
                p /= p.sum()
            share *= p[token]
        found[answer] = share
    assert math.isclose(sum(found.values()), 1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "order", "temperature", "top_p"),
    [(1, "confidence", 1.0, None), (2, "confidence", 0.7, None), (2, "origin", 1.0, 0.9)],
)
def test_the_distribution_is_the_targets_own(
    target: TorchEngine,
    diffusion: DreamModel,
    steps: int,
    order: str,
    temperature: float,
    top_p: float | None,
) -> None:
    expected = exactly(target, temperature, top_p)
    config = DenoiseConfig(canvas=3, total_steps=steps, order=order, commit="quota")
    drafter = Remembered(diffusion, config, SIZE, Sampling(1.0, seed=10**6))
    engine = RememberedTarget(target)
    count = 5000
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        own = Sampling(temperature, top_p, seed)
        options = FillOptions(3, drafter=drafter, max_draft=3, sampling=own)
        tokens = tuple(t.id for t in fill(engine, PROMPT, NOTHING, options))
        found[tokens] += 1
    shares: Counter[tuple[int, ...]] = Counter()
    for answer, share in expected.items():  # which end token came is not in the answer
        shares[tuple(token for token in answer if token < END)] += share  # type: ignore[assignment]
    assert all(shares[answer] > 0 for answer in found)
    cells = [(found[answer], share * count) for answer, share in shares.items() if share * count >= 8]
    rest = count - sum(wanted for _, wanted in cells)
    if rest > 1e-6:
        cells.append((count - sum(seen for seen, _ in cells), rest))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = max(len(cells) - 1, 1)
    # Wilson and Hilferty; 3.09 is the normal distribution's 99.9% point.
    assert statistic <= freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    mean = sum(math.sqrt(2 * p * (1 - p) / (math.pi * count)) for p in shares.values()) / 2
    distance = sum(abs(found[answer] / count - share) for answer, share in shares.items()) / 2
    assert distance <= mean + math.sqrt(math.log(1000) / (2 * count))  # McDiarmid's inequality


def test_the_last_step_is_drawn_and_earlier_commits_are_chosen(diffusion: DreamModel) -> None:
    config = DenoiseConfig(canvas=6, total_steps=3, commit="quota")
    drafter = DiffusionDrafter(diffusion, config, SIZE, Sampling(1.0, seed=1))
    drafts = [drafter.draft(PROMPT, 6) for _ in range(60)]
    assert drafter.passes == 180
    first = drafts[0]
    certain = [bool((share == 1).any()) for share in first.odds]
    assert 0 < sum(certain) < 6
    for draft in drafts:
        np.testing.assert_array_equal(draft.odds, first.odds)
        assert all(share[id_] > 0 for id_, share in zip(draft.ids, draft.odds, strict=True))
        assert all(0 <= id_ < SIZE for id_ in draft.ids)
    for at, sure in enumerate(certain):
        assert (len({draft.ids[at] for draft in drafts}) == 1) == sure


def test_limits(diffusion: DreamModel) -> None:
    drafter = DiffusionDrafter(diffusion, DenoiseConfig(canvas=5, total_steps=1), SIZE)
    assert len(drafter.draft(PROMPT, 9).ids) == 5
    assert len(drafter.draft(PROMPT, 2).ids) == 2
    assert drafter.draft(PROMPT, 0) == drafter.draft([1] * 60, 5) == Draft(())
    assert drafter.draft([*PROMPT, SIZE + 2], 5) == Draft(())  # an id that the drafter lacks
    with pytest.raises(RequestError, match="vocab: expected"):
        DiffusionDrafter(diffusion, DenoiseConfig(canvas=5, total_steps=1), 0)


def test_a_bundle_and_a_checkpoint_of_one_vocabulary(dream_folder: Path, edge_bundle: Path) -> None:
    """The device's engine as the target, and a diffusion checkpoint loaded as the sampler loads it."""
    bundle = Bundle.open(edge_bundle)
    engine = OrtEngine.open(bundle, threads=1)
    model = load_model(str(dream_folder), device="cpu")
    nothing = AnchorSet.empty(64, bundle.contract)
    expected = [t.id for t in fill(engine, [5, 9, 17], nothing, FillOptions(24))]
    drafter = DiffusionDrafter(model, DenoiseConfig(canvas=8, total_steps=2), engine.vocab)
    options = FillOptions(24, drafter=drafter, max_draft=8)
    stats = FillStats()
    assert [t.id for t in fill(engine, [5, 9, 17], nothing, options, stats)] == expected
    assert stats.drafted
