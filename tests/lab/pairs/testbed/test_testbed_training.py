"""The recipe of the testbed: tokenizer, shapes, batches, and a short run of the command's loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from cloud_anchor.shipped import PAIRS
from lab.pairs import shapes, tokens
from lab.pairs.batches import Batches, Mix, mask
from lab.pairs.pair import Pair
from lab.pairs.testbed import recipe
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import training_families
from lab.pairs.trainer import PairTrainer, train

SIZE = 600
"""Tokens of the tests' tokenizer, which is trained in a second."""


@pytest.fixture(scope="module")
def small(library: Library) -> Tokenizer:
    return tokens.train(training_families(library).values(), SIZE, 60)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


SHAPE = shapes.shape(SIZE, positions=320, hidden=32, mlp=64, layers=1, heads=1, diffusion=True)


@pytest.fixture(scope="module")
def pair(library: Library) -> Pair:
    """The testbed with small models of random weights."""
    return replace(recipe.pair(library), shapes=dict.fromkeys(recipe.SHAPES, SHAPE), initial=None)


def test_the_tokenizer_keeps_results_of_sums_whole(small: Tokenizer) -> None:
    """One piece each, which becomes one token where the corpus has it often enough (below)."""
    for number in range(1, 100):
        pieces = [piece for piece, _ in small.pre_tokenizer.pre_tokenize_str(f"6 * 8 = {number}.")]
        assert pieces[-2:] == [f"Ġ{number}", "."]
    assert small.decode(small.encode("Côte d'Ivoire: 7.2 million").ids) == "Côte d'Ivoire: 7.2 million"
    assert [small.token_to_id(t) for t in tokens.SPECIALS] == list(tokens.special_ids(SIZE))


def test_the_shipped_tokenizer_has_its_size_and_a_token_for_each_result() -> None:
    shipped = Tokenizer.from_file(str(PAIRS["testbed"].checkpoint / "tokenizer.json"))
    assert shipped.get_vocab_size() == recipe.TOKENS + len(tokens.SPECIALS)
    assert all(len(shipped.encode(f" {number}").ids) == 1 for number in range(1, 100))


def test_the_models_have_the_sizes_that_they_should() -> None:
    sizes = {name: shapes.parameters(shapes.build(c)) for name, c in recipe.SHAPES.items()}
    assert 5e6 < sizes["testbed-dream"] < 20e6
    assert 0.05 < sizes["testbed-qwen"] / sizes["testbed-dream"] < 0.15


def test_a_batch_is_a_function_of_its_step(library: Library, small: Tokenizer) -> None:
    mixes = recipe.curriculum(library)
    first, second = (Batches(small, mixes.families, knows=True, seed=1) for _ in range(2))
    first.at(3, 512, mixes.causal)
    assert torch.equal(first.at(7, 512, mixes.masked).ids, second.at(7, 512, mixes.masked).ids)
    assert not torch.equal(
        first.at(7, 512, mixes.causal).ids[0, :20], first.at(8, 512, mixes.causal).ids[0, :20]
    )


@pytest.mark.parametrize("causal", [1, 3, 5])
def test_the_last_steps_are_about_the_world_that_is_asked_about(
    pair: Pair, small: Tokenizer, tmp_path: Path, causal: int
) -> None:
    planned: dict[str, Any] = {"steps": 5, "causal_steps": causal, "late_steps": 2, "early_steps": 1}
    trainer = trainer_of(pair, small, tmp_path / "late", **planned)
    stages = trainer.curriculum
    mixes = [stages.early, *[stages.causal if step < causal else stages.masked for step in (1, 2)]]
    mixes += [stages.late] * 2
    asked: list[Mix | None] = []
    batches = trainer._batches.at
    trainer._batches.at = lambda step, size, mix: asked.append(mix) or batches(step, 64, mix)  # type: ignore
    for step in range(5):
        trainer.step = step
        trainer.batch()
    assert asked == mixes


def test_rows_are_full_and_end_with_their_markers(library: Library, small: Tokenizer) -> None:
    end_of_text, _, im_end, mask_id = tokens.special_ids(SIZE)
    mixes = recipe.curriculum(library)
    batches = Batches(small, mixes.families, knows=False, seed=0)
    filled = []
    for step in range(4):
        batch = batches.at(step, 1024, mixes.causal)
        for row, end in zip(batch.ids.tolist(), batch.end.tolist(), strict=True):
            assert row[end] == im_end
            assert set(row[end + 1 :]) <= {end_of_text}
            filled.append((end + 1) / len(row))
    assert sum(filled) / len(filled) > 0.6
    masked, hit = mask(batch, np.random.default_rng(0), mask_id)
    assert bool((masked[hit] == mask_id).all())


def trainer_of(pair: Pair, words: Tokenizer, folder: Path, **changes: Any) -> PairTrainer:
    """A trainer of testbed-dream, not started, with these changes of its recipe."""
    folder.mkdir(exist_ok=True)
    changed = replace(pair.recipes["testbed-dream"], **changes)
    return PairTrainer(pair, changed, words, folder, seed=3, device="cpu")


def test_a_resumed_run_equals_one_in_a_piece(pair: Pair, small: Tokenizer, tmp_path: Path) -> None:
    def trainer(folder: Path) -> PairTrainer:
        result = trainer_of(
            pair, small, folder, steps=4, causal_steps=2, causal_tokens=512, masked_tokens=512, early_steps=0
        )
        result.resume()
        return result

    straight = trainer(tmp_path / "straight")
    seen: list[int] = []
    train(straight, watch=lambda: seen.append(straight.step))
    assert seen == [1, 2, 3, 4]
    broken = trainer(tmp_path / "broken")
    for _ in range(3):
        broken.advance(broken.batch())
    broken.save()
    again = trainer(tmp_path / "broken")
    train(again)
    for key, value in straight.ema.items():
        assert torch.equal(value, again.ema[key]), key
    tokens.save(small, tmp_path / "tokenizer")
    again.export(tmp_path / "tokenizer", tmp_path / "dream")
    again.export(tmp_path / "tokenizer", tmp_path / "causal", diffusion=False)
    kinds = [
        json.loads((tmp_path / n / "config.json").read_text())["model_type"] for n in ("dream", "causal")
    ]
    assert kinds == ["Dream", "qwen2"]
