"""SpecDiff: the target's own text, whatever a diffusion model drafts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import FAMILIES
from cloud_anchor.sampling.config import DenoiseConfig
from edge_runtime.decode.forced import fill
from lab.drafting.diffusion_drafter import DiffusionDrafter
from lab.drafting.speculation import DraftModel, speculate
from lab.drafting.torch_engine import TorchEngine
from payload import AnchorSet, Contract

SIZE, END, MASK = 6, 4, 6
CONTRACT = Contract(4, "0" * 64, {"<|im_end|>": END, "<|endoftext|>": 5}, "1" * 64)


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
def test_the_text_is_the_targets_whatever_is_drafted(
    target: TorchEngine, diffusion: DreamModel, gamma: int, steps: int
) -> None:
    for prompt in ([1], [1, 3, 0], [2, 2, 0, 3]):
        plain = list(fill(target, prompt, AnchorSet.empty(20, CONTRACT)))
        drafter = DiffusionDrafter(
            diffusion, DenoiseConfig(canvas=gamma, total_steps=min(steps, gamma), commit="quota"), SIZE
        )
        for draft in (drafter, DraftModel(TorchEngine(net(3, SIZE))), DraftModel(TorchEngine(net(1, SIZE)))):
            found = speculate(target, prompt, CONTRACT.eos_ids, 20, draft, gamma)
            assert found.ids == [t.id for t in plain]
            assert found.passes <= len(plain) + 1
        # The last draft is the target's own: all of it is accepted up to an end.
        assert found.passes <= math.ceil((len(plain) + 1) / (gamma + 1))
        assert drafter.passes <= min(steps, gamma) * (len(plain) + 1)


def test_drafts_stay_within_their_bounds(target: TorchEngine, diffusion: DreamModel) -> None:
    drafter = DiffusionDrafter(diffusion, DenoiseConfig(canvas=5, total_steps=1), SIZE)
    assert 2 == len(drafter([1, 3, 0], 2)) < len(drafter([1, 3, 0], 9)) <= 5
    assert drafter.computed == 2 * (3 + 5)
    assert drafter([1], 0) == drafter([1] * 60, 5) == drafter([1, SIZE + 2], 5) == []
    small = DraftModel(target)
    assert len(small([1] * 60, 9)) == 5  # the last one is not run
    assert small([1] * 65, 9) == []
    first = small([1, 2], 3)
    assert small([1, 2, *first[:2]], 1) == first[2:]
