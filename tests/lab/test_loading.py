"""The models of a run by name: a shipped pair's edge model alone is joined by its larger one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cloud_anchor.model.row_weights import in_rows, round_checkpoint
from cloud_anchor.shipped import PAIRS, ShippedPair
from edge_runtime.bundle.lookup import FOLDERS_VARIABLE
from edge_runtime.decode.forced import FillOptions, fill
from lab.experiments.paper.sizes import needs
from lab.loading import open_lab
from lab.options import Options
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


def test_the_larger_model_of_a_pair_is_an_edge_model_too(pair: ShippedPair, tmp_path: Path) -> None:
    lab = open_lab(options(tmp_path / "made", "own-qwen"))
    assert [edge.name for edge in lab.edges] == ["own-qwen", "own-causal"]
    assert [edge.runtime.bundle.variant_name for edge in lab.ladder] == ["fp32", "fp32"]
    assert needs(lab) is None
    assert in_rows(pair.weights / pair.thinker), "what ships stays as it is"
    assert lab.thinker is not None
    engine, prompt = lab.edges[1].runtime.engine, [5, 9, 17]
    none = AnchorSet.empty(16, lab.edges[1].runtime.bundle.contract)
    greedy = FillOptions(score_anchors=False, max_tokens=12)
    assert [token.id for token in fill(engine, prompt, none, greedy)] == lab.thinker.write(prompt, 12)


def test_a_larger_model_that_is_missing_is_named_and_one_that_is_not_wanted_is_left_out(
    pair: ShippedPair, tmp_path: Path
) -> None:
    assert len(open_lab(options(tmp_path / "made", str(pair.bundle))).edges) == 1
    shutil.rmtree(pair.weights / pair.thinker)
    lab = open_lab(options(tmp_path / "made", "own-qwen"))
    assert [edge.name for edge in lab.edges] == ["own-qwen"]
    assert "own-causal: expected the folder or the name of a model bundle" in str(needs(lab))
