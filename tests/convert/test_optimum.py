"""Graphs by optimum: other families end to end, and the builder's graphs against them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers

import convert.graph.optimum_export
from convert import convert as run_convert
from convert.__main__ import main
from convert.conversion import bundle_shape
from convert.errors import ArchitectureError
from convert.graph.decoder import write_graph
from convert.graph.optimum_export import EXPORTED, export_by_optimum
from convert.graph.weights import Floating
from convert.source.checkpoint import Checkpoint
from convert.source.exportable import ExportableCheckpoint, exportable_shape
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.doctor import examine
from edge_runtime.engine.genai_engine import GenaiEngine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.errors import EngineError
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Codec, Shared, encode
from tests.checkpoints import write_tiny_decoder, write_tiny_other

FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2LMHead": {},
    "OPT": {},
    # Every sixth layer attends to everything, the others to the last 32 positions.
    "Gemma3": {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 32},
}


@pytest.fixture(scope="session")
def optimum() -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="the extra optimum is not installed")


@pytest.fixture(scope="session")
def made(optimum: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Checkpoint and bundle of a family, made once."""
    known: dict[str, tuple[Path, Path]] = {}

    def make(family: str) -> tuple[Path, Path]:
        if family not in known:
            folder = tmp_path_factory.mktemp(family)
            source = write_tiny_other(folder / "source", family, **FAMILIES[family])
            out = folder / "bundle"
            arguments = ["--exporter", "optimum", "--variants", "fp32,fp16"]
            loose = ["--threshold", "fp16.top1=0.95", "--threshold", "fp16.mean_kl=1e-3"]
            loose += ["--threshold", "fp16.greedy=0.3"]  # random weights have no margins
            assert main([str(source), "-o", str(out), *arguments, *loose]) == 0
            known[family] = source, out
        return known[family]

    return make


def torch_logits(folder: Path, ids: list[int]) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        result: np.ndarray = model(torch.tensor([ids])).logits[0].numpy()
    return result


@pytest.mark.parametrize("family", list(FAMILIES))
def test_chunks_and_rewinds_give_the_logits_of_pytorch(family: str, made: Any) -> None:
    source, out = made(family)
    engine = OrtEngine.open(Bundle.open(out, "fp32"), threads=1)
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 300, 150)]
    expected = torch_logits(source, ids)
    random, at = np.random.default_rng(1), 0
    while at < len(ids):
        chunk = ids[at : at + int(random.integers(1, 30))]
        rows = [row for row in range(len(chunk)) if random.random() < 0.5]
        found = engine.append(chunk, rows)
        assert found.shape == (len(rows), expected.shape[1])
        np.testing.assert_allclose(found, expected[[at + row for row in rows]], atol=5e-4)
        at += len(chunk)
        if random.random() < 0.4:
            at -= int(random.integers(0, min(at, 50)))
            engine.rewind(at)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_bundle_is_verified_and_fills_payloads(family: str, made: Any, tmp_path: Path) -> None:
    """The same answer as the original model gives, forced one token at a time (section 3.2)."""
    source, out = made(family)
    bundle = Bundle.open(out, "fp32")
    bundle.verify_contract()
    assert {variant.cache for variant in bundle.manifest.variants.values()} == {"growing"}
    assert {"optimum", "optimum-onnx"} <= set(bundle.manifest.tools)
    sizes = {
        name: sum(record.size for record in variant.files.values())
        for name, variant in bundle.manifest.variants.items()
    }
    assert sizes["fp16"] < 0.75 * sizes["fp32"]
    report = examine(out, threads=1)
    assert [found.problems for found in report.findings] == [(), ()]
    assert all("slower" in found.notes[0] for found in report.findings)

    ids = tuple(bundle.tokenizer.encode("river hills"))[:4]
    anchors = AnchorSet(tuple(range(3, 3 + len(ids))), ids, 24, bundle.contract, 20)
    edge = EdgeRuntime(bundle, threads=1)
    prompt = edge.prompt_ids("Name a river.")
    data = encode(anchors, Shared(bundle.contract))
    answer = [token.id for token in edge.fill(edge.read(data, "Name a river."))]
    expected: list[int] = []
    usable = np.array([bundle.contract.is_ordinary(id_) for id_ in range(bundle.manifest.model.vocab_size)])
    known = dict(zip(anchors.positions, anchors.ids, strict=True))
    while len(expected) < 20:
        row = torch_logits(source, [*prompt, *expected])[-1]
        expected.append(known.get(len(expected), int(np.where(usable, row, -np.inf).argmax())))
    assert answer == expected


def test_predictive_payloads_and_prepacked_weights(made: Any, tmp_path: Path) -> None:
    bundle = Bundle.open(made("GPT2LMHead")[1], "fp32")
    edge = EdgeRuntime(bundle, threads=1)
    prompt = edge.prompt_ids("Name a river.")
    predictor = edge.predictive_model.predictor(prompt)
    ids = tuple(bundle.tokenizer.encode("The river rises"))
    anchors = AnchorSet(tuple(range(len(ids))), ids, 24, bundle.contract, len(ids))
    data = encode(anchors, Shared(bundle.contract, predictor=predictor), codec=Codec.PREDICTIVE)
    assert [token.id for token in edge.fill(edge.read(data, "Name a river."))] == list(ids)

    cache = PrepackCache(bundle, tmp_path)
    plain, packed = OrtEngine.open(bundle, threads=1), OrtEngine.open(bundle, threads=1, cache=cache)
    for engine in (plain, packed):
        engine.append(prompt)
    np.testing.assert_allclose(plain.append([5], [0]), packed.append([5], [0]), atol=1e-5)


def test_a_growing_graph_is_not_run_with_a_fixed_cache(made: Any) -> None:
    bundle = Bundle.open(made("GPT2LMHead")[1], "fp32")
    with pytest.raises(EngineError, match="position_ids"):
        OrtEngine(bundle.graph_path, bundle.manifest.model, context=64, threads=1)
    with pytest.raises(EngineError):
        GenaiEngine.open(bundle)


@pytest.mark.parametrize("family", ["Qwen2", "Llama"])
def test_the_builders_portable_graph_equals_optimums(family: str, optimum: None, tmp_path: Path) -> None:
    """Two independent ways from one checkpoint to ONNX; optimum's graph is run as it is, by no engine."""
    folder = write_tiny_decoder(tmp_path / "source", family)
    ids = [int(i) for i in np.random.default_rng(3).integers(0, 300, 40)]
    export_by_optimum(ExportableCheckpoint(folder), tmp_path / "exported")
    session = ort.InferenceSession(str(tmp_path / "exported" / EXPORTED), providers=["CPUExecutionProvider"])
    shape = Checkpoint(folder).shape
    empty = np.zeros((1, shape.num_key_value_heads, 0, shape.head_dim), np.float32)
    feed = {node.name: empty for node in session.get_inputs()}
    feed |= {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    feed["position_ids"] = np.arange(len(ids))[None]
    expected = session.run(["logits"], feed)[0][0]

    (tmp_path / "built").mkdir()
    path = tmp_path / "built" / "model.onnx"
    write_graph(Checkpoint(folder), path, Floating(), "portable", 64)
    engine = OrtEngine(path, bundle_shape(shape, "id", "revision"), context=64, threads=1)
    found = np.concatenate(
        [engine.append(ids[start : start + 8], range(8)).copy() for start in range(0, 40, 8)]
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert (found.argmax(-1) == expected.argmax(-1)).all()


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tiny_other(tmp_path / "source", "GPT2LMHead")
    monkeypatch.setitem(sys.modules, "optimum.exporters.onnx", None)
    assert main([str(source), "-o", str(tmp_path / "out"), "--exporter", "optimum"]) == 2
    assert "'.[optimum]'" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    source = write_tiny_other(tmp_path / "source", "GPT2LMHead")
    with pytest.raises(ArchitectureError):
        run_convert(source, tmp_path / "out")
    with pytest.raises(ArchitectureError):
        exportable_shape(transformers.CLIPConfig(), "CLIPModel", 1, tmp_path)


def test_a_graph_with_other_inputs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimum: None
) -> None:
    """A library that writes a cache of other sizes than the configuration says."""
    source = write_tiny_other(tmp_path / "source", "GPT2LMHead")
    other = write_tiny_other(tmp_path / "other", "GPT2LMHead", num_attention_heads=2)
    export = convert.graph.optimum_export._library()

    def wrong(folder: str, *arguments: Any, **options: Any) -> None:
        export(str(other), *arguments, **options)

    monkeypatch.setattr(convert.graph.optimum_export, "_library", lambda: wrong)
    with pytest.raises(ArchitectureError, match="caches"):
        run_convert(source, tmp_path / "out", exporter="optimum", threads=1)
