"""The recipe of the tiny pair: batches, masks, and runs that resume exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cloud_anchor.shipped import PAIRS
from lab.pairs import shapes
from lab.pairs.shapes import END_OF_TEXT, IM_END, MASK
from lab.pairs.train import RECIPES, Trainer, plot, train
from lab.pairs.training_data import MASKED, Batches, TrainingBatch, mask

FOLDER = PAIRS["tiny"].weights / "tiny-qwen"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shipped tokenizer is missing")


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_a_batch_is_a_function_of_its_step(words: Tokenizer) -> None:
    first, second = (Batches(words, knows=True, seed=1) for _ in range(2))
    assert torch.equal(first.at(7, 512).ids, second.at(7, 512).ids)
    assert not torch.equal(first.at(7, 512).ids[0, :20], first.at(8, 512).ids[0, :20])


def test_rows_are_prompt_answer_end_and_tail(words: Tokenizer) -> None:
    batches = Batches(words, knows=False, seed=0)
    for step in range(4):
        batch = batches.at(step, 1024)
        assert batch.ids.shape[1] in MASKED.lengths
        for row, start, end in zip(batch.ids.tolist(), batch.start.tolist(), batch.end.tolist(), strict=True):
            assert row[end] == IM_END
            assert set(row[end + 1 :]) <= {END_OF_TEXT}
            assert max(row[start:end]) < END_OF_TEXT


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(20, 60))
def test_masks_fall_on_the_canvas_only_and_always_somewhere(seed: int, rows: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    start = torch.tensor(rng.integers(1, length // 2, rows))
    end = torch.tensor([int(rng.integers(s + 1, length)) for s in start.tolist()])
    ids = torch.tensor(rng.integers(0, 1000, (rows, length)))
    masked, hit = mask(TrainingBatch(ids, start, end, torch.zeros_like(ids, dtype=torch.bool)), rng)
    assert bool((masked[hit] == MASK).all())
    assert torch.equal(masked[~hit], ids[~hit])
    assert not bool((hit & (torch.arange(length)[None] < start[:, None])).any())


def test_only_the_results_of_drilled_sums_are_masked(words: Tokenizer) -> None:
    batch = Batches(words, knows=True, seed=0).at(0, 16_384)
    _, hit = mask(batch, np.random.default_rng(0))
    rows = batch.results.any(1)
    assert 0 < int(rows.sum()) < len(rows)
    row = int(rows.nonzero()[0])
    sums = words.decode(batch.ids[row, batch.start[row] : batch.end[row]].tolist()).split(".")
    asked = [words.decode([token]).strip() for token in batch.ids[row][hit[row]].tolist()]
    assert asked == [line.split("=")[1].strip() for line in sums if "=" in line]
    assert torch.equal(hit[rows], batch.results[rows])


def test_masking_rates_cover_the_whole_range(words: Tokenizer) -> None:
    batch = Batches(words, knows=True, seed=0).at(0, 16_384)
    _, hit = mask(batch, np.random.default_rng(0))
    at = torch.arange(batch.ids.shape[1])[None]
    answer = (at >= batch.start[:, None]) & (at < batch.end[:, None])
    rows = ~batch.results.any(1)
    shares = ((hit & answer).sum(1) / answer.sum(1))[rows]
    assert float(shares.min()) < 0.15
    assert float(shares.max()) > 0.85


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_resumed_run_equals_one_in_a_piece(name: str, words: Tokenizer, tmp_path: Path) -> None:
    causal = 2 if name == "tiny-dream" else 4
    recipe = replace(RECIPES[name], steps=4, causal_steps=causal, causal_tokens=256, masked_tokens=256)

    def trainer(folder: Path) -> Trainer:
        folder.mkdir(exist_ok=True)
        result = Trainer(recipe, folder, seed=3, device="cpu", compiled=False)
        result.resume()
        return result

    torch.set_num_threads(1)
    straight = trainer(tmp_path / "straight")
    train(straight, words, quiet=True)
    broken = trainer(tmp_path / "broken")
    batches = Batches(words, knows=recipe.knows, seed=3)
    for _ in range(3):
        broken.advance(broken.batch(batches))
    broken.save()
    again = trainer(tmp_path / "broken")
    assert again.step == 3
    train(again, words, quiet=True)
    for key, value in straight.ema.items():
        assert torch.equal(value, again.ema[key]), key


def test_training_lowers_the_loss_and_leaves_a_log_and_a_plot(words: Tokenizer, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    recipe = replace(RECIPES["tiny-qwen"], steps=20, causal_tokens=512)
    trainer = Trainer(recipe, tmp_path, seed=0, device="cpu", compiled=False)
    train(trainer, words, quiet=True)
    rows = [json.loads(line) for line in trainer.log.read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] < rows[0]["loss"]
    plot([trainer.log], tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_shipped_weights_are_small_and_of_the_stated_shapes() -> None:
    sizes = [f.stat().st_size for f in PAIRS["tiny"].weights.rglob("*.safetensors")]
    assert len(sizes) == len(shapes.SHAPES)
    assert sum(sizes) < 40e6
    counts = {name: shapes.parameters(shapes.create(name)) for name in shapes.SHAPES}
    assert 0.05 < counts["tiny-qwen"] / counts["tiny-dream"] < 0.15
