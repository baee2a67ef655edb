"""Releases: what is copied, what is refused, the weights in eight bits, and the model card."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import find_checkpoint, read_examples
from cloud_anchor.shipped import PAIRS, ShippedPair
from edge_runtime.bundle.bundle import MANIFEST, Bundle, bundle_folder
from edge_runtime.bundle.lookup import find_bundles
from lab.autoregressive import Autoregressive
from lab.pairs import shapes
from lab.pairs import ship as ship_module
from lab.pairs.card import Card, Trained
from lab.pairs.pair import Pair
from lab.pairs.problem import Problem
from lab.pairs.row_weights import in_rows, open_qwen2, restored, round_checkpoint, rounded
from lab.pairs.ship import MOST_BYTES, ship, ship_taught, weight_bytes
from lab.pairs.testbed import recipe
from lab.pairs.testbed.library import Library
from lab.pairs.tiny import recipe as tiny
from lab.statistics import summary
from tests.shipped import TINY_BUNDLE

TOKENIZER = PAIRS["tiny"].checkpoint


@given(st.integers(0, 2**31), st.floats(1e-4, 1e3))
def test_a_weight_is_restored_to_half_a_step_of_its_row(seed: int, size: float) -> None:
    matrix = torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)) * size
    matrix[2] = 0
    stored = rounded({"a.weight": matrix, "norm.weight": matrix[0]})
    assert stored["a.weight"].dtype == torch.int8
    assert torch.equal(stored["norm.weight"], matrix[0])
    found = restored(stored)
    assert set(found) == {"a.weight", "norm.weight"}
    limit = matrix.abs().amax(1, keepdim=True) / 127 / 2
    assert bool(((found["a.weight"] - matrix).abs() <= limit * 1.001).all())


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
    after = Autoregressive.load(
        tmp_path / "one", frozenset({tiny.SHAPES["tiny-qwen"]["eos_token_id"]}), device="cpu"
    )
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
        return ShippedPair(folder / "weights", "one-dream", folder / "bundle", "none", folder / "none.json")

    def ship(self) -> int:
        return ship(self.run, self.pair, {"ours": self.ours, "theirs": self.theirs})


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
    assert place.ship() == 3 * 3 + 6 + 4 + 10
    assert (place.ours.checkpoint / "model.safetensors").read_bytes() == b"new"
    assert (place.ours.bundle / "model.onnx.data").read_bytes() == b"newnew"
    assert weight_bytes([place.ours.weights, place.ours.bundle]) == 15
    assert (place.theirs.checkpoint / "model.safetensors").read_bytes() == b"old!"


def test_a_kept_model_stays_as_it_ships_with_its_bundle(place: Place) -> None:
    for name in ("one-causal", "one-qwen"):
        (place.ours.weights / name).mkdir()
        (place.ours.weights / name / "model.safetensors").write_bytes(b"kept")
        (place.run / name / "model.safetensors").unlink()
    keep = ["one-causal", "one-qwen"]
    assert ship(place.run, place.pair, {"ours": place.ours, "theirs": place.theirs}, keep) > 0
    found = [
        (place.ours.weights / f"one-{name}/model.safetensors").read_bytes() for name in ("dream", "qwen")
    ]
    assert found == [b"new", b"kept"]
    assert (place.ours.bundle / "model.onnx.data").read_bytes() == b"old bundle"


def test_a_taught_model_ships_beside_the_pairs_own_in_eight_bits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught = replace(place.ours, model="ours-taught")
    shipped = {"ours": place.ours, "ours-taught": taught, "theirs": place.theirs}
    run = place.run.parent / "distil"
    (run / "testbed-dream").mkdir(parents=True)
    save_file({"a.weight": torch.ones(4, 400)}, run / "testbed-dream" / "model.safetensors")
    (place.ours.checkpoint / "examples.json").write_text("[]")
    size = ship_taught(run, place.pair, shipped)
    assert in_rows(taught.checkpoint)
    assert (taught.checkpoint / "examples.json").read_text() == "[]"
    assert (place.ours.checkpoint / "model.safetensors").read_bytes() == b"old!"
    assert size == (taught.checkpoint / "model.safetensors").stat().st_size + 4 + 10 + 4 + 10
    assert ship_taught(run, place.pair, shipped) == size  # in place of itself
    monkeypatch.setattr(ship_module, "MOST_BYTES", size - 1)
    with pytest.raises(CheckpointError, match=r"expected at most .* MB for the weights"):
        ship_taught(run, place.pair, shipped)
    # It stays where the pair's own are shipped again, and counts.
    monkeypatch.setattr(ship_module, "MOST_BYTES", size + 100)
    assert ship(place.run, place.pair, shipped) == size - 4 - 10 + 3 * 3 + 6
    assert in_rows(taught.checkpoint)


def test_weights_that_are_too_large_replace_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ship_module, "MOST_BYTES", 28)
    with pytest.raises(CheckpointError, match=r"expected at most .* MB for the weights"):
        place.ship()
    assert (place.ours.checkpoint / "model.safetensors").read_bytes() == b"old!"
    assert (place.ours.bundle / "model.onnx.data").read_bytes() == b"old bundle"


def test_a_run_that_lacks_a_checkpoint_is_refused(place: Place) -> None:
    (place.run / "one-causal" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"one-causal: expected a trained checkpoint.*train ours`"):
        place.ship()


def test_the_weights_of_this_repository_stay_below_the_limit() -> None:
    folders = [folder for pair in PAIRS.values() for folder in (pair.weights, pair.bundle)]
    assert 0 < weight_bytes(folders) <= MOST_BYTES


def make_run(folder: Path, step: int | None = None) -> Path:
    """What the card reads of a run."""
    folder.mkdir()
    for name, planned in recipe.RECIPES.items():
        done = planned.steps if step is None else step
        torch.save({"step": done, "recipe": asdict(planned)}, folder / f"{name}.pt")
        rows = [{"step": n, "loss": 9.5 - n / 10, "seconds": 2.5 * n} for n in (10, 20)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    row = {"step": 1000, "fact": 0.667, "sum": 0.0}
    (folder / "testbed-dream.evaluations.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", step=7)
    steps = recipe.RECIPES["testbed-dream"].steps
    with pytest.raises(CheckpointError, match=f"expected a finished run of {steps} steps, found step 7"):
        Trained.read(run, "testbed-dream")
    with pytest.raises(CheckpointError, match="expected a file of a training run, found none"):
        Trained.read(tmp_path, "testbed-dream")


def test_a_kept_model_has_its_log_from_the_old_card(pair: Pair, tmp_path: Path) -> None:
    run, weights = make_run(tmp_path / "run"), tmp_path / "weights"
    weights.mkdir()
    Card(pair, [Trained.read(run, name) for name in pair.recipes], None, "", None).write(weights)
    for name, recipe_ in pair.recipes.items():
        assert Trained.kept(weights, name, recipe_) == Trained.read(run, name)
        (run / f"{name}.jsonl").unlink()
    with pytest.raises(CheckpointError, match="expected the log of other, found KeyError"):
        Trained.kept(weights, "other", recipe.RECIPES["testbed-qwen"])
    card = Card.read(pair, run, None, "", None, list(pair.recipes), weights)
    assert [one.name for one in card.trained] == list(pair.recipes)


def test_a_taught_model_has_the_curve_of_its_run_beside_the_old_log(pair: Pair, tmp_path: Path) -> None:
    run, weights, taught = make_run(tmp_path / "run"), tmp_path / "weights", tmp_path / "taught"
    weights.mkdir()
    Card(pair, [Trained.read(run, name) for name in pair.recipes], None, "", None).write(weights)
    make_run(taught)
    with pytest.raises(CheckpointError, match=r"expected the curve of a run of `lab distil`, found none"):
        Card.read(pair, taught, None, "", None, list(pair.recipes), weights, taught)
    (taught / "curve.jsonl").write_text(
        json.dumps({"step": 700, "commit": 0.7, "tokens_a_pass": 5.25}) + "\n"
    )
    Card.read(pair, taught, None, "", None, list(pair.recipes), weights, taught).write(weights)
    text = re.sub(r" +\|", " |", (weights / "README.md").read_text())
    assert "testbed-taught is testbed-dream, taught to answer in few passes" in text
    assert "| 700 | 0.7 | 5.25 |" in text
    assert "1,000 | 0.67" in text  # the evaluations of the training before
    again = Card.read(pair, run, None, "", None, list(pair.recipes), weights)
    assert [dict(row) for row in again.curve] == [{"step": 700, "commit": 0.7, "tokens_a_pass": 5.25}]


def test_the_card_has_the_run_the_log_the_sources_and_the_notice(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.noun").write_text("  1 Take it.  \n  2 WordNet 3.0 Copyright 2006.  \n0001 03 n | no\n")
    monkeypatch.setattr(recipe.sources, "wordnet_folder", lambda: tmp_path)
    about = {"Version": "1.2", "License": "MIT"}
    monkeypatch.setattr(recipe.metadata, "metadata", lambda name: about)
    rows = [
        {
            "figure": "first pass F1",
            "wanted": "<= 0.8",
            "found": asdict(summary([0.7, 0.72])),
            "reached": "yes",
        },
        {"figure": "long answers", "wanted": "<= 0.4", "found": None, "reached": "no"},
    ]
    table = {"title": "12 held-out questions", "columns": list(rows[0]), "rows": rows}
    hardness = tmp_path / "tables.json"
    hardness.write_text(json.dumps({"tables": {"hardness": table}}))
    run = make_run(tmp_path / "run")
    folder = tmp_path / "weights"
    (folder / "testbed-dream").mkdir(parents=True)
    (folder / "testbed-dream" / "model.safetensors").write_bytes(b"0" * 200_000)
    Card.read(pair, run, hardness, "4 cores", "None at all.").write(folder)
    dream = recipe.RECIPES["testbed-dream"]
    card = re.sub(r" +\|", " |", (folder / "README.md").read_text())
    for part in (
        f"{dream.causal_steps:,} causal of {dream.causal_tokens:,} tokens, then "
        f"{dream.steps - dream.causal_steps:,} masked of 8,192",
        f"{dream.causal_steps * dream.causal_tokens / 1e6:.1f} million + ",
        "testbed-dream 0.2",
        "4 cores",
        "None at all.",
        "| first pass F1 | <= 0.8 | 0.71 [0.70, 0.72] | yes |",
        "| long answers | <= 0.4 | | no |",
        "12 held-out questions",
        "| testbed-dream | 1,000 | 0.67 | 0.00 |",
        "| 1.2 | MIT |",
        "WordNet 3.0 Copyright 2006.",
    ):
        assert part in card
    assert "0001" not in card
    log = json.loads((folder / "training-log.json").read_text())
    assert log["testbed-qwen"]["log"] == {"step": [10, 20], "loss": [8.5, 7.5], "seconds": [25.0, 50.0]}
    assert (folder / "loss.png").stat().st_size > 1000


def test_a_recipe_that_is_not_the_pairs_is_told(pair: Pair, tmp_path: Path) -> None:
    card = Card.read(pair, make_run(tmp_path / "run"), None, "", None)
    assert list(card.deviations()) == []
    dream = card.trained[0]
    other = replace(dream, recipe=replace(dream.recipe, ema=0.5))
    assert list(replace(card, trained=[dream, other]).deviations()) == [
        "testbed-dream was trained with ema 0.5 instead of 0.998."
    ]


def test_a_file_that_is_no_hardness_report_is_refused(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"other\.json: expected tables\.json of the experiment hardness"
    ):
        Card.read(pair, make_run(tmp_path / "run"), tmp_path / "other.json", "", None)


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
    with pytest.raises(CheckpointError, match="they come with the extra `cloud`"):
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
