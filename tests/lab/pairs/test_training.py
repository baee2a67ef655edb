"""Masks, the loss over a few steps, and the command, on the tiny pair's questions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cloud_anchor.shipped import PAIRS
from lab.pairs.batches import Batches, TrainingBatch, mask
from lab.pairs.tokens import special_ids
from lab.pairs.train import RECIPES, main
from lab.pairs.trainer import PairTrainer, plot, train
from tests.lab.pairs import tiny_pair

MASK = special_ids(tiny_pair.TOKENS)[3]
FOLDER = PAIRS["tiny"].weights / "tiny-qwen"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shipped tokenizer is missing")


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.fixture(scope="module")
def batch(words: Tokenizer) -> TrainingBatch:
    batches = Batches(words, tiny_pair.CURRICULUM.families, knows=True, seed=0)
    return batches.at(0, 16_384, tiny_pair.MIX)


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


def test_only_the_results_of_drilled_sums_are_masked(batch: TrainingBatch, words: Tokenizer) -> None:
    _, hit = mask(batch, np.random.default_rng(0), MASK)
    rows = batch.results.any(1)
    assert 0 < int(rows.sum()) < len(rows)
    row = int(rows.nonzero()[0])
    sums = words.decode(batch.ids[row, batch.start[row] : batch.end[row]].tolist()).split(".")
    asked = [words.decode([token]).strip() for token in batch.ids[row][hit[row]].tolist()]
    assert asked == [line.split("=")[1].strip() for line in sums if "=" in line]
    assert torch.equal(hit[rows], batch.results[rows])


def test_masking_rates_cover_the_whole_range(batch: TrainingBatch) -> None:
    _, hit = mask(batch, np.random.default_rng(0), MASK)
    at = torch.arange(batch.ids.shape[1])[None]
    answer = (at >= batch.start[:, None]) & (at < batch.end[:, None])
    shares = ((hit & answer).sum(1) / answer.sum(1))[~batch.results.any(1)]
    assert float(shares.min()) < 0.15
    assert float(shares.max()) > 0.85


def test_training_lowers_the_loss_and_leaves_a_log_and_a_plot(words: Tokenizer, tmp_path: Path) -> None:
    recipe = replace(tiny_pair.RECIPES["tiny-qwen"], steps=20, causal_tokens=512)
    trainer = PairTrainer(tiny_pair.PAIR, recipe, words, tmp_path, seed=0, device="cpu")
    train(trainer)
    rows = [json.loads(line) for line in trainer.log.read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] < rows[0]["loss"]
    plot({"log": pd.DataFrame(rows)}, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_the_command_trains_one_model_and_exports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES, "testbed", lambda: tiny_pair.PAIR)
    shutil.copytree(FOLDER, tmp_path / "tokenizer")
    common = ["testbed", "--only", "tiny-qwen", "--device", "cpu", "--threads", "1", "-o", str(tmp_path)]
    assert main([*common, "--steps", "1", "--no-compile"]) == 0
    assert "step 1 of 1" in capsys.readouterr().err
    assert json.loads((tmp_path / "tiny-qwen/config.json").read_text())["model_type"] == "qwen2"
    assert main(["testbed", "--only", "other", "-o", str(tmp_path)]) == 2
