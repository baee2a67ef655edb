"""The models of a run by name: several edge models are opened in one precision, checkpoints are converted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cloud_anchor.errors import CheckpointError
from cloud_anchor.shipped import PAIRS, ShippedPair
from edge_runtime.bundle.lookup import FOLDERS_VARIABLE
from edge_runtime.decode.forced import FillOptions, fill
from lab.experiments.paper.sizes import needs
from lab.loading import open_lab
from lab.options import Options
from lab.pairs.row_weights import in_rows, round_checkpoint
from payload import AnchorSet
from tests.checkpoints import write_tiny_qwen


@pytest.fixture
def pair(
    dream_folder: Path, edge_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ShippedPair:
    """A pair of random models by the name `own`; its larger model has weights in eight bits."""
    made = ShippedPair(
        tmp_path / "weights", "own-dream", tmp_path / "own-qwen", "own-causal", tmp_path / "none.json"
    )
    shutil.copytree(dream_folder, made.checkpoint)
    shutil.copytree(edge_bundle, made.bundle)
    round_checkpoint(write_tiny_qwen(made.weights / made.thinker, layers=3, seed=9))
    monkeypatch.setitem(PAIRS, "own", made)  # type: ignore[arg-type]
    monkeypatch.setenv(FOLDERS_VARIABLE, str(tmp_path))
    return made


def options(place: Path, *edges: str) -> Options:
    return Options(place, "own", edges, canvas=16, total_steps=4, device="cpu", threads=1)


def test_edge_models_of_several_sizes_are_in_one_precision(pair: ShippedPair, tmp_path: Path) -> None:
    causal = str(pair.weights / pair.thinker)
    lab = open_lab(options(tmp_path / "made", "own-qwen", causal))
    assert [edge.name for edge in lab.edges] == ["own-qwen", "own-causal"]
    assert [edge.runtime.bundle.variant_name for edge in lab.edges] == ["fp32", "fp32"]
    assert needs(lab) is None
    assert in_rows(pair.weights / pair.thinker), "what ships stays as it is"
    assert lab.thinker is not None
    engine, prompt = lab.edges[1].runtime.engine, [5, 9, 17]
    none = AnchorSet.empty(16, lab.edges[1].runtime.bundle.contract)
    greedy = FillOptions(score_anchors=False, max_tokens=12)
    assert [token.id for token in fill(engine, prompt, none, greedy)] == lab.thinker.write(prompt, 12)
    manifest = tmp_path / "made" / "bundles" / "own-causal" / "bundle.json"
    data = json.loads(manifest.read_text())
    data["variants"]["int8"] = data["variants"].pop("fp32")
    manifest.write_text(json.dumps(data | {"default_variant": "int8"}))
    with pytest.raises(CheckpointError):
        open_lab(options(tmp_path / "made", "own-qwen", causal))


def test_models_that_are_not_there_are_left_out(pair: ShippedPair, tmp_path: Path) -> None:
    lab = open_lab(options(tmp_path / "made", str(pair.bundle)), teachers=False)
    assert (len(lab.edges), lab.thinker) == (1, None)
    assert needs(lab) is not None
