"""The recipe of the tiny pair: batches, masks, and runs that resume exactly."""

from __future__ import annotations

import json
import shutil
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
from lab.pairs.batches import Batches, TrainingBatch, mask
from lab.pairs.tiny.recipe import CURRICULUM, PAIR, RECIPES, SHAPES, TOKENS
from lab.pairs.tokens import special_ids
from lab.pairs.train import main as command
from lab.pairs.trainer import PairTrainer, plot, train

END_OF_TEXT, _, IM_END, MASK = special_ids(TOKENS)
FOLDER = PAIRS["tiny"].weights / "tiny-qwen"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shipped tokenizer is missing")


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def batch_of(words: Tokenizer, step: int, tokens: int, *, knows: bool = True, seed: int = 0) -> TrainingBatch:
    return Batches(words, CURRICULUM.families, knows=knows, seed=seed).at(step, tokens, CURRICULUM.masked)


def test_a_batch_is_a_function_of_its_step(words: Tokenizer) -> None:
    first, again, next_one = (batch_of(words, step, 512, seed=1).ids for step in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first[0, :20], next_one[0, :20])


def test_rows_are_prompt_answer_end_and_tail(words: Tokenizer) -> None:
    for step in range(4):
        batch = batch_of(words, step, 1024, knows=False)
        assert batch.ids.shape[1] in CURRICULUM.masked.lengths
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
    masked, hit = mask(TrainingBatch(ids, start, end, torch.zeros_like(ids, dtype=torch.bool)), rng, MASK)
    assert bool((masked[hit] == MASK).all())
    assert torch.equal(masked[~hit], ids[~hit])
    assert not bool((hit & (torch.arange(length)[None] < start[:, None])).any())


def test_only_the_results_of_drilled_sums_are_masked(words: Tokenizer) -> None:
    batch = batch_of(words, 0, 16_384)
    _, hit = mask(batch, np.random.default_rng(0), MASK)
    rows = batch.results.any(1)
    assert 0 < int(rows.sum()) < len(rows)
    row = int(rows.nonzero()[0])
    sums = words.decode(batch.ids[row, batch.start[row] : batch.end[row]].tolist()).split(".")
    asked = [words.decode([token]).strip() for token in batch.ids[row][hit[row]].tolist()]
    assert asked == [line.split("=")[1].strip() for line in sums if "=" in line]
    assert torch.equal(hit[rows], batch.results[rows])


def test_masking_rates_cover_the_whole_range(words: Tokenizer) -> None:
    batch = batch_of(words, 0, 16_384)
    _, hit = mask(batch, np.random.default_rng(0), MASK)
    at = torch.arange(batch.ids.shape[1])[None]
    answer = (at >= batch.start[:, None]) & (at < batch.end[:, None])
    rows = ~batch.results.any(1)
    shares = ((hit & answer).sum(1) / answer.sum(1))[rows]
    assert float(shares.min()) < 0.15
    assert float(shares.max()) > 0.85


@pytest.mark.parametrize("name", ["tiny-dream", "tiny-qwen"])
def test_a_resumed_run_equals_one_in_a_piece(name: str, words: Tokenizer, tmp_path: Path) -> None:
    causal = 2 if name == "tiny-dream" else 4
    recipe = replace(RECIPES[name], steps=4, causal_steps=causal, causal_tokens=256, masked_tokens=256)

    def trainer(folder: Path) -> PairTrainer:
        folder.mkdir(exist_ok=True)
        result = PairTrainer(PAIR, recipe, words, folder, seed=3, device="cpu")
        result.resume()
        return result

    straight = trainer(tmp_path / "straight")
    train(straight, quiet=True)
    broken = trainer(tmp_path / "broken")
    for _ in range(3):
        broken.advance(broken.batch())
    broken.save()
    again = trainer(tmp_path / "broken")
    assert again.step == 3
    train(again, quiet=True)
    for key, value in straight.ema.items():
        assert torch.equal(value, again.ema[key]), key


def test_training_lowers_the_loss_and_leaves_a_log_and_a_plot(words: Tokenizer, tmp_path: Path) -> None:
    recipe = replace(RECIPES["tiny-qwen"], steps=20, causal_tokens=512)
    trainer = PairTrainer(PAIR, recipe, words, tmp_path, seed=0, device="cpu")
    train(trainer, quiet=True)
    rows = [json.loads(line) for line in trainer.log.read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] < rows[0]["loss"]
    plot([trainer.log], tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_command_trains_one_model_and_exports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDER, tmp_path / "tokenizer")
    common = ["tiny", "--only", "tiny-qwen", "--device", "cpu", "--threads", "1", "-o", str(tmp_path)]
    assert command([*common, "--steps", "1", "--no-compile"]) == 0
    assert "tiny-qwen: step 1 of 1" in capsys.readouterr().err
    written = tmp_path / "tiny-qwen"
    assert (tmp_path / "loss.png").is_file()
    (tmp_path / "tiny-qwen.pt").unlink()
    shutil.rmtree(tmp_path / "tokenizer")
    assert command([*common, "--go-on-from", str(written), "7", "--export"]) == 0
    assert (tmp_path / "tokenizer/tokenizer.json").read_text() == (FOLDER / "tokenizer.json").read_text()
    assert "tiny-qwen: step 7 of 2000" in capsys.readouterr().err
    assert command([*common, "--go-on-from", str(tmp_path), "7"]) == 2
    assert "expected a folder with model.safetensors" in capsys.readouterr().err
    assert command(["tiny", "--only", "testbed-qwen"]) == 2
    assert (
        "expected one of tiny-dream, tiny-qwen, tiny-qwen-large, found testbed-qwen"
        in capsys.readouterr().err
    )


def test_the_shipped_weights_are_small_and_of_the_stated_shapes() -> None:
    sizes = [f.stat().st_size for f in PAIRS["tiny"].weights.rglob("*.safetensors")]
    assert len(sizes) == len(SHAPES)
    assert sum(sizes) < 40e6
    counts = {name: shapes.parameters(shapes.build(shape)) for name, shape in SHAPES.items()}
    assert 0.05 < counts["tiny-qwen"] / counts["tiny-dream"] < 0.15
