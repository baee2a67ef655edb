"""The models of a run by name: several edge models are opened in one precision."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import PAIRS, ShippedPair
from edge_runtime.bundle.lookup import FOLDERS_VARIABLE
from lab.experiments.paper.sizes import needs
from lab.loading import open_lab
from lab.options import Options
from lab.pairs.row_weights import round_checkpoint
from tests.checkpoints import write_tiny_qwen


@pytest.fixture
def pair(
    dream_folder: Path, edge_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ShippedPair:
    """A pair of random models by the name `own`; its larger model has weights in eight bits."""
    made = ShippedPair(tmp_path / "weights", "own-dream", tmp_path / "own-qwen", "own-causal")
    shutil.copytree(dream_folder, made.checkpoint)
    shutil.copytree(edge_bundle, made.bundle)
    round_checkpoint(write_tiny_qwen(made.weights / made.thinker, layers=3, seed=9))
    monkeypatch.setitem(PAIRS, "own", made)  # type: ignore[arg-type]
    monkeypatch.setenv(FOLDERS_VARIABLE, str(tmp_path))
    return made


def options(place: Path, *edges: str) -> Options:
    return Options(place, "own", edges, canvas=16, total_steps=4, device="cpu", threads=1)


def test_edge_models_of_several_sizes_are_in_one_precision(pair: ShippedPair, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(pair.bundle, other)
    lab = open_lab(options(tmp_path / "made", "own-qwen", str(other)))
    assert [edge.name for edge in lab.edges] == ["own-qwen", "other"]
    assert [edge.runtime.bundle.variant_name for edge in lab.edges] == ["fp32", "fp32"]
    assert needs(lab) is None
    assert lab.thinker is not None
    assert lab.thinker.name == pair.thinker, "from weights in eight bits"
    data = json.loads((other / "bundle.json").read_text())
    data["variants"] = {"int8": data["variants"]["fp32"]}
    (other / "bundle.json").write_text(json.dumps(data | {"default_variant": "int8"}))
    manifest = pair.bundle / "bundle.json"
    data["variants"] = {"fp32": data["variants"]["int8"]}
    manifest.write_text(json.dumps(data | {"default_variant": "fp32"}))
    with pytest.raises(CheckpointError):
        open_lab(options(tmp_path / "made", "own-qwen", str(other)))


def test_models_that_are_not_there_are_left_out(pair: ShippedPair, tmp_path: Path) -> None:
    lab = open_lab(options(tmp_path / "made", str(pair.bundle)), teachers=False)
    assert (len(lab.edges), lab.thinker) == (1, None)
    assert needs(lab) is not None
