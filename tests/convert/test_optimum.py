"""The portable graph against optimum's export of the same checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from convert.conversion import bundle_shape
from convert.graph.decoder import write_graph
from convert.graph.nodes import OPSET
from convert.graph.weights import Floating
from convert.source.checkpoint import Checkpoint
from edge_runtime.engine.ort_engine import OrtEngine
from tests.checkpoints import write_tiny_decoder

optimum = pytest.importorskip("optimum.exporters.onnx", reason="optimum-onnx is not installed")


@pytest.mark.parametrize("family", ["Qwen2", "Llama"])
def test_the_portable_graph_equals_optimums(family: str, tmp_path: Path) -> None:
    """Two independent ways from one checkpoint to ONNX; optimum's graph is run as it is, by no engine."""
    folder = write_tiny_decoder(tmp_path / "source", family)
    ids = [int(i) for i in np.random.default_rng(3).integers(0, 300, 40)]
    export = {"task": "text-generation-with-past", "opset": OPSET, "dtype": "fp32", "do_validation": False}
    optimum.main_export(str(folder), tmp_path / "exported", **export, library_name="transformers")
    session = ort.InferenceSession(
        str(tmp_path / "exported" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
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
