"""onnxruntime-genai through the same interface: the same logits, tokens and rewinds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.genai_engine import GenaiEngine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import ContextError, EngineError
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Shared, encode


@pytest.fixture(scope="module")
def bundle(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    pytest.importorskip("onnx")
    from convert import Thresholds
    from convert import convert as run_convert

    out = tmp_path_factory.mktemp("genai") / "bundle"
    bounds = {name: Thresholds() for name in ("fp32", "int8")}
    run_convert(tiny_checkpoint, out, variants=list(bounds), thresholds=bounds, context=200, threads=1)
    return Bundle.open(out, "fp32")


@pytest.fixture(scope="module")
def ids() -> list[int]:
    return [int(i) for i in np.random.default_rng(0).integers(0, 300, 150)]


def test_logits_of_any_rows_after_any_rewind(bundle: Bundle, ids: list[int]) -> None:
    ours, theirs = OrtEngine.open(bundle, threads=1), GenaiEngine.open(bundle, threads=1)
    random = np.random.default_rng(1)
    at = 0
    while at < len(ids):
        chunk = ids[at : at + int(random.integers(1, 20))]
        rows = [row for row in range(len(chunk)) if random.random() < 0.3]
        expected = ours.append(chunk, rows)
        np.testing.assert_allclose(theirs.append(chunk, rows), expected, atol=1e-4)
        assert theirs.length == ours.length
        at += len(chunk)
        if random.random() < 0.4 and at < len(ids):
            at -= int(random.integers(0, min(at, 30)))
            ours.rewind(at)
            theirs.rewind(at)
    theirs.rewind(0)
    ours.rewind(0)
    np.testing.assert_allclose(theirs.append(ids[:9], [8]), ours.append(ids[:9], [8]), atol=1e-4)


@pytest.mark.parametrize(("variant", "scored"), [("fp32", False), ("fp32", True), ("int8", False)])
def test_forced_answers_are_the_same(bundle: Bundle, ids: list[int], variant: str, scored: bool) -> None:
    """In blocks of 32: in blocks of 64 sums may differ in their last bits, activations then round to other
    integers, and random weights have tokens that close.
    """
    bundle = Bundle.open(bundle.path, variant)
    ours, theirs = OrtEngine.open(bundle, threads=1), GenaiEngine.open(bundle, threads=1)
    for seed in range(4):
        random = np.random.default_rng(seed)
        places = sorted({int(p) for p in random.integers(0, 40, 12)})
        anchors = AnchorSet(
            tuple(places),
            tuple(int(i) for i in random.integers(0, 300, len(places))),
            48,
            bundle.contract,
            45,
        )
        options = FillOptions(score_anchors=scored)
        found = list(fill(theirs, ids[: 20 + seed], anchors, options))
        expected = list(fill(ours, ids[: 20 + seed], anchors, options))
        assert [(t.id, t.source) for t in found] == [(t.id, t.source) for t in expected]
        if scored:
            np.testing.assert_allclose([t.logprob for t in found], [t.logprob for t in expected], atol=1e-4)


def test_what_cannot_be_opened(bundle: Bundle, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContextError):
        GenaiEngine.open(bundle, context=201)
    with pytest.raises(EngineError):
        GenaiEngine.open(Bundle.open(tiny_bundle))
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    with pytest.raises(EngineError):
        GenaiEngine.open(bundle)


def test_a_runtime_fills_with_it(bundle: Bundle) -> None:
    ours = EdgeRuntime(bundle, threads=1)
    theirs = EdgeRuntime(bundle, GenaiEngine.open(bundle, threads=1))
    prompt = "How many loaves did she sell?"
    anchors = AnchorSet((0, 1, 5, 12), (40, 50, 60, 80), 32, bundle.contract, 20)
    data = encode(anchors, Shared(bundle.contract, ours.prompt_ids(prompt)))
    found, expected = (edge.fill(edge.read(data, prompt)) for edge in (theirs, ours))
    assert [t[:3] for t in found] == [t[:3] for t in expected]
