"""The testbed's first weights: where heads look before any training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from cloud_anchor.shipped import PAIRS
from lab.pairs import shapes
from lab.pairs.testbed import initial, recipe
from lab.pairs.testbed.library import Library
from lab.pairs.trainer import PairTrainer

NAMES = sorted(recipe.SHAPES)


def model_of(name: str) -> Qwen2ForCausalLM:
    torch.manual_seed(1)
    model = shapes.build(recipe.SHAPES[name])
    initial.set_weights(model)
    return model.eval()


def attention(model: Qwen2ForCausalLM, ids: list[int]) -> tuple[torch.Tensor, ...]:
    """Attention of each layer, float32[heads, L, L]."""
    with torch.inference_mode():
        found = model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    return tuple(layer[0] for layer in found)


@pytest.mark.parametrize("name", NAMES)
def test_heads_of_the_first_layer_look_back(name: str) -> None:
    ids = torch.randint(0, recipe.TOKENS, (200,), generator=torch.Generator().manual_seed(2)).tolist()
    first = attention(model_of(name), ids)[0]
    for head, distance in enumerate(initial.DISTANCES):
        weights = first[head].diagonal(-distance)[distance:]
        assert weights.min() > 0.4
        assert weights.mean() > 0.7, (head, distance)


@pytest.mark.parametrize("name", NAMES)
def test_heads_of_the_second_layer_look_for_what_came_next(name: str) -> None:
    """In a list said twice, the place after a token's first mention has more than its share; in a head of
    random weights it has its share."""
    count = 40
    items = torch.randperm(recipe.TOKENS, generator=torch.Generator().manual_seed(3))[:count].tolist()
    second = attention(model_of(name), items + items)[1]
    rows, places = torch.arange(count + 2, 2 * count - 1), torch.arange(3, count)
    shares = second[:, rows, places] / second[:, rows, :count].mean(-1)
    at_random = shares[len(initial.DISTANCES)].mean()
    assert 0.8 < at_random < 1.2
    assert shares[0].mean() > 5
    assert shares[1].mean() > 2.5


def test_the_vocabularys_head_says_what_is_read() -> None:
    model = model_of("testbed-dream")
    said = model.lm_head.weight @ model.model.embed_tokens.weight[:100].T
    assert torch.equal(said.argmax(0), torch.arange(100))


def test_a_run_starts_from_them_and_its_average_too(library: Library, tmp_path: Path) -> None:
    words = Tokenizer.from_file(str(PAIRS["testbed"].checkpoint / "tokenizer.json"))
    testbed = recipe.pair(library)
    trainer = PairTrainer(testbed, testbed.recipes["testbed-qwen"], words, tmp_path, seed=1, device="cpu")
    for key, value in model_of("testbed-qwen").state_dict().items():
        assert torch.equal(value, trainer.ema[key]), key
