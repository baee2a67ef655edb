"""Releases: what is copied, what is refused, the weights in eight bits, and the model card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import SCALE, find_checkpoint, read_examples, restore
from cloud_anchor.shipped import PAIRS, ShippedPair
from edge_runtime.bundle.bundle import MANIFEST, Bundle, bundle_folder
from edge_runtime.bundle.lookup import find_bundles
from lab.autoregressive import Autoregressive
from lab.pairs import card, shapes
from lab.pairs import ship as ship_module
from lab.pairs.pair import Pair
from lab.pairs.problem import Problem
from lab.pairs.row_weights import in_rows, open_qwen2, round_checkpoint, rounded
from lab.pairs.ship import ship, ship_taught
from lab.pairs.testbed import recipe
from lab.pairs.testbed.library import Library
from tests.lab.pairs import tiny_pair as tiny
from tests.shipped import TINY_BUNDLE

TOKENIZER = PAIRS["tiny"].checkpoint


@given(st.integers(0, 2**31), st.floats(1e-4, 1e3))
def test_a_weight_is_restored_to_half_a_step_of_its_row(seed: int, size: float) -> None:
    matrix = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) * size
    matrix[2] = 0
    stored = rounded({"a.weight": matrix, "norm.weight": matrix[0]})
    assert stored["a.weight"].dtype == torch.int8
    assert torch.equal(stored["norm.weight"], matrix[0])
    found = restore(stored["a.weight"], stored["a.weight" + SCALE])
    limit = matrix.abs().amax(1, keepdim=True) / 127 / 2
    assert bool(((found - matrix).abs() <= limit * 1.001).all())


@pytest.mark.skipif(not TOKENIZER.is_dir(), reason="the shipped tokenizer is missing")
def test_a_checkpoint_in_eight_bits_is_half_as_large_and_computes_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = tiny.SHAPES["tiny-dream"] | {"num_hidden_layers": 1}
    shapes.write(shape, shapes.build(shape), TOKENIZER, tmp_path / "one", diffusion=False)
    before, ids = open_qwen2(tmp_path / "one", dtype=torch.float32).eval(), torch.arange(8)[None]
    size = (tmp_path / "one" / "model.safetensors").stat().st_size
    assert not in_rows(tmp_path / "one")
    round_checkpoint(tmp_path / "one")
    assert in_rows(tmp_path / "one")
    assert (tmp_path / "one" / "model.safetensors").stat().st_size < 0.52 * size
    after = Autoregressive.load(tmp_path / "one", device="cpu")
    assert after.net.dtype == torch.float32
    assert after.net.generation_config.eos_token_id == before.generation_config.eos_token_id
    with torch.no_grad():
        one, other = before(input_ids=ids).logits, after.net(input_ids=ids).logits
    assert float((one - other).abs().max()) < 0.05 * float(one.abs().max())


@pytest.fixture(scope="module")
def pair() -> Pair:
    """The testbed of no entities."""
    return recipe.pair(Library(()))


class Place:
    """A run of small files, a pair to replace, and another pair."""

    def __init__(self, root: Path, pair: Pair) -> None:
        self.run = root / "run"
        self.ours, self.theirs = (self._shipped(root / name) for name in ("ours", "theirs"))
        for name in ("one-dream", "one-causal", "one-qwen"):
            (self.run / name).mkdir(parents=True)
            (self.run / name / "model.safetensors").write_bytes(b"new")
        for shipped in (self.ours, self.theirs):
            shipped.checkpoint.mkdir(parents=True)
            (shipped.checkpoint / "model.safetensors").write_bytes(b"old!")
            shipped.bundle.mkdir()
            (shipped.bundle / "model.onnx.data").write_bytes(b"old bundle")
        self.pair = replace(
            pair,
            name="ours",
            shapes={"one-qwen": recipe.SHAPES["testbed-qwen"]},
            checkpoints=("one-dream", "one-causal", "one-qwen"),
            edge="one-qwen",
            rounded=(),
            verified=1,
            held_out=lambda count: [Problem("", "easy", "Why?", "", (), "")] * count,
        )

    @staticmethod
    def _shipped(folder: Path) -> ShippedPair:
        return ShippedPair(folder / "weights", "one-dream", folder / "bundle", "none")

    def ship(self) -> None:
        ship(self.run, self.pair, {"ours": self.ours, "theirs": self.theirs})


@pytest.fixture
def place(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    def convert(checkpoint: Path, out: Path, **given: Any) -> None:
        assert given["prompts"] == ["Why?"]
        assert given["context"] == 320
        out.mkdir()
        (out / "model.onnx.data").write_bytes((checkpoint / "model.safetensors").read_bytes() * 2)

    monkeypatch.setattr(ship_module, "convert", convert)
    return Place(tmp_path, pair)


def test_a_release_replaces_weights_and_bundle(place: Place) -> None:
    place.ship()
    assert (place.ours.checkpoint / "model.safetensors").read_bytes() == b"new"
    assert (place.ours.bundle / "model.onnx.data").read_bytes() == b"newnew"
    assert (place.theirs.checkpoint / "model.safetensors").read_bytes() == b"old!"


def test_a_taught_model_ships_beside_the_pairs_own_in_eight_bits(place: Place) -> None:
    taught = replace(place.ours, model="ours-taught")
    shipped = {"ours": place.ours, "ours-taught": taught, "theirs": place.theirs}
    run = place.run.parent / "distil"
    (run / "testbed-dream").mkdir(parents=True)
    save_file({"a.weight": torch.ones(4, 400)}, run / "testbed-dream" / "model.safetensors")
    (place.ours.checkpoint / "examples.json").write_text("[]")
    ship_taught(run, place.pair, shipped)
    assert in_rows(taught.checkpoint)
    assert (taught.checkpoint / "examples.json").read_text() == "[]"
    assert (place.ours.checkpoint / "model.safetensors").read_bytes() == b"old!"
    ship(place.run, place.pair, shipped)
    assert in_rows(taught.checkpoint), "it stays where the pair's own are shipped again"


def test_a_run_that_lacks_a_checkpoint_is_refused(place: Place) -> None:
    (place.run / "one-causal" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        place.ship()


def test_the_weights_of_this_repository_stay_below_the_limit() -> None:
    folders = {folder for pair in PAIRS.values() for folder in (pair.weights, pair.bundle)}
    files = [file for folder in folders for file in folder.rglob("*")]
    weights = [file for file in files if file.suffix in (".safetensors", ".onnx", ".data")]
    assert 0 < sum(file.stat().st_size for file in weights) <= 40e6


def make_run(folder: Path, step: int | None = None) -> Path:
    """What the card reads of a run."""
    folder.mkdir()
    for name, planned in recipe.RECIPES.items():
        steps = (10, step or planned.steps)
        rows = [
            {"step": n, "loss": loss, "seconds": 2.5 * n} for n, loss in zip(steps, (8.5, 7.5), strict=True)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_an_unfinished_run_is_refused(pair: Pair, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", step=7)
    for folder in (run, tmp_path):  # the other one has no files of a run
        with pytest.raises(CheckpointError):
            card.logs_of(pair, tmp_path, folder, None)


def test_the_card_has_the_run_the_log_the_sources_and_the_notice(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.noun").write_text("  1 Take it.  \n  2 WordNet 3.0 Copyright 2006.  \n0001 03 n | no\n")
    monkeypatch.setattr(recipe.sources, "wordnet_folder", lambda: tmp_path)
    monkeypatch.setattr(recipe.metadata, "metadata", lambda name: {"Version": "1.2", "License": "MIT"})
    run, folder, taught = make_run(tmp_path / "run"), tmp_path / "weights", tmp_path / "taught"
    (folder / "testbed-dream").mkdir(parents=True)
    (folder / "testbed-dream" / "model.safetensors").write_bytes(b"0" * 200_000)
    card.write(pair, card.logs_of(pair, folder, run, None), folder)
    text = (folder / "README.md").read_text()
    dream = recipe.RECIPES["testbed-dream"]
    for part in (f"{dream.causal_steps:,} of 4,096", "7.500", "testbed-dream 0.2", "WordNet 3.0 Copyright"):
        assert part in text
    assert "0001" not in text
    assert (folder / "loss.png").stat().st_size > 1000
    taught.mkdir()
    (taught / "curve.jsonl").write_text(
        json.dumps({"step": 700, "commit": 0.9, "tokens_a_pass": 5.25}) + "\n"
    )
    card.write(pair, card.logs_of(pair, folder, tmp_path, taught), folder)
    assert "5.25" in (folder / "README.md").read_text()
    assert card.logs_of(pair, folder, run, None)["curve.jsonl"]["step"].tolist() == [700]


def test_shipped_models_and_bundles_have_names(tmp_path: Path) -> None:
    assert bundle_folder("tiny-qwen") == bundle_folder("tiny") == TINY_BUNDLE
    assert bundle_folder("testbed") == PAIRS["testbed"].bundle
    assert bundle_folder(tmp_path) == tmp_path
    assert bundle_folder("no-such-bundle") == Path("no-such-bundle")
    for name in ("tiny-qwen", "tiny"):
        assert find_bundles("", name, {"XDG_DATA_HOME": str(tmp_path)}) == [TINY_BUNDLE]
    assert find_checkpoint("tiny") == find_checkpoint("tiny-dream") == PAIRS["tiny"].checkpoint


def test_a_pair_without_weights_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(PAIRS["testbed"], weights=tmp_path)
    monkeypatch.setattr("cloud_anchor.model.checkpoint.PAIRS", {"testbed": missing})
    with pytest.raises(CheckpointError):
        find_checkpoint("testbed")


shipped = pytest.mark.skipif(
    not (PAIRS["testbed"].checkpoint / "model.safetensors").is_file(),
    reason="the testbed's weights are not in this repository yet",
)


@shipped
def test_the_shipped_testbed_is_whole(pair: Pair, tmp_path: Path) -> None:
    place = PAIRS["testbed"]
    for name in pair.checkpoints:
        assert (find_checkpoint(name) / "model.safetensors").is_file()
        assert in_rows(find_checkpoint(name)) == (name in pair.rounded)
    for variant in ship_module.VARIANTS:
        bundle = Bundle.open("testbed-qwen", variant)
        assert bundle.path == place.bundle
        bundle.verify_contract()
    assert (place.bundle / MANIFEST).is_file()
    tag = bundle.contract.identity[:2]
    assert place.bundle in find_bundles(tag, None, {"XDG_DATA_HOME": str(tmp_path)})
    assert len(read_examples(place.checkpoint)) >= 7
    assert (place.weights / "README.md").is_file()
