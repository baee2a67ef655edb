"""The graphs give PyTorch's logits in every dialect and storage format, for any division into chunks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from transformers import AutoModelForCausalLM

from convert.conversion import bundle_shape
from convert.graph.decoder import DialectName, write_graph
from convert.graph.dialects import exact_scale
from convert.graph.quantisation import BLOCK, quantize
from convert.graph.weights import Blockwise, Floating, WeightFormat
from convert.source.checkpoint import Checkpoint
from edge_runtime.engine.ort_engine import OrtEngine
from tests.checkpoints import write_tiny_decoder, write_tiny_qwen
from tests.convert.dequantize import dequantize

CONTEXT = 128
VOCABULARY = 320
"""Rows of the random checkpoints' embeddings: no other matrix has as many."""

Weights = Callable[[np.ndarray], np.ndarray]


def original_logits(folder: Path, ids: list[int], stored: Weights = lambda w: w) -> np.ndarray:
    """Logits of every position by PyTorch, each matrix replaced by what its storage format keeps of it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(torch.from_numpy(stored(parameter.numpy())))
        result: np.ndarray = model(torch.tensor([ids])).logits[0].numpy()
    return result


def engine(
    checkpoint: Checkpoint, folder: Path, weights: WeightFormat, dialect: DialectName, context: int = CONTEXT
) -> OrtEngine:
    path = folder / "model.onnx"
    write_graph(checkpoint, path, weights, dialect, context)
    return OrtEngine(path, bundle_shape(checkpoint.shape, "id", "revision"), context=context, threads=1)


def halved(weight: np.ndarray) -> np.ndarray:
    return weight.astype(np.float16).astype(np.float32)


def blockwise(bits: int, block: int = BLOCK) -> Weights:
    def stored(weight: np.ndarray) -> np.ndarray:
        fits = weight.shape[1] % block == 0
        return dequantize(quantize(weight, bits, block if fits else BLOCK), bits, weight.shape[1])

    return stored


FORMATS: dict[str, tuple[WeightFormat, Weights]] = {
    "fp32": (Floating(), lambda w: w),
    "fp16": (Floating(half=True), halved),
    # With float32 activations the only loss is that of storage, which PyTorch is given too.
    "int8": (Blockwise(8, accuracy=0), blockwise(8)),
    "int4": (Blockwise(4, 64, accuracy=0), blockwise(4, 64)),
}
if importlib.util.find_spec("pandas"):  # the laboratory's is not in every installation
    from lab.benches.int4 import WithTable

    FORMATS["int4, table in int8"] = (
        WithTable(4, accuracy=0, table=Blockwise(8, accuracy=0)),
        lambda weight: blockwise(8 if len(weight) == VOCABULARY else 4)(weight),
    )


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Qwen2": {"family": "Qwen2"},
    "Qwen2, no multiple of a block": {"family": "Qwen2", "tied": False, "hidden": 48, "heads": 3}
    | {"kv_heads": 1, "intermediate": 88, "layers": 3},
    "SmolLM2": {"family": "Llama", "heads": 3, "kv_heads": 1, "hidden": 48},
    "TinyLlama": {"family": "Llama", "tied": False, "hidden": 128, "heads": 8, "kv_heads": 2},
    "Llama 3.2": {"family": "Llama", "rope_scaling": LLAMA3_SCALING, "positions": 512},
    "linear scaling": {"family": "Llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "Qwen3": {"family": "Qwen3", "head_dim": 32},
    "Qwen3, power of two": {"family": "Qwen3", "head_dim": 16, "tied": False},
    "Gemma 3": {
        "family": "Gemma3",
        "layers": 4,
        "head_dim": 32,
        "query_pre_attn_scalar": 16,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "Gemma 3, one key/value head": {
        "family": "Gemma3",
        "layers": 7,
        "kv_heads": 1,
        "head_dim": 16,
        "query_pre_attn_scalar": 20,
        "sliding_window": 9,
    },
}


@pytest.mark.parametrize("dialect", ["fused", "portable"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("model", FAMILIES)
def test_logits_equal_pytorch(
    model: str, name: str, dialect: DialectName, tmp_path: Path, ids: list[int]
) -> None:
    folder = write_tiny_decoder(tmp_path / "source", **FAMILIES[model])
    weights, stored = FORMATS[name]
    runner = engine(Checkpoint(folder), tmp_path, weights, dialect)
    expected = original_logits(folder, ids, stored)
    tolerance = 1e-4 if name == "fp32" else 2e-4
    np.testing.assert_allclose(runner.append(ids, list(range(len(ids)))), expected, atol=tolerance)
    runner.rewind(11)  # in chunks, after a rewind
    np.testing.assert_allclose(runner.append(ids[11:30], [18]), expected[[29]], atol=tolerance)
    np.testing.assert_allclose(runner.append(ids[30:31], [0]), expected[[30]], atol=tolerance)


@pytest.mark.parametrize(("head_dim", "scale"), [(16, 1 / 4), (32, 1.0), (64, 1 / 8), (100, 1.0), (128, 1.0)])
def test_queries_are_scaled_beforehand_where_nothing_is_lost(head_dim: int, scale: float) -> None:
    assert exact_scale(head_dim) == scale
    weight = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    plain, scaled = quantize(weight, 4), quantize(weight * np.float32(scale), 4)
    np.testing.assert_array_equal(scaled.packed, plain.packed)
    np.testing.assert_array_equal(scaled.scales, plain.scales * np.float32(scale))


@pytest.mark.parametrize("dialect", ["fused", "portable"])
def test_chunks_rows_and_rewinding(
    dialect: DialectName, checkpoint: Checkpoint, tmp_path: Path, ids: list[int]
) -> None:
    """Any cut into chunks gives the logits of one pass; rows may be none; what was rewound leaves no
    trace.
    """
    expected = original_logits(checkpoint.folder, ids)
    runner = engine(checkpoint, tmp_path, Floating(), dialect)
    np.testing.assert_allclose(runner.append(ids[:7], [6]), expected[[6]], atol=1e-4)
    assert runner.append([1, 2, 3] * 25).shape == (0, checkpoint.shape.vocab_size)  # also outgrows the buffer
    runner.rewind(7)
    assert runner.append(ids[7:20], []).shape == (0, checkpoint.shape.vocab_size)
    np.testing.assert_allclose(runner.append(ids[20:23], [0, 2]), expected[[20, 22]], atol=1e-4)
    for place in range(23, len(ids)):
        np.testing.assert_allclose(runner.append([ids[place]], [0])[0], expected[place], atol=1e-4)


def test_portable_uses_standard_operators_only(checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_graph(checkpoint, tmp_path / "model.onnx", Floating(half=True), "portable", CONTEXT)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert {node.domain for node in model.graph.node} == {""}
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize(("bits", "expected"), [(8, 1.125), (4, 0.625)])
def test_a_tied_embedding_is_stored_once_and_quantised(bits: int, expected: float, tmp_path: Path) -> None:
    """Bytes a weight: the integers and one float32 scale a block; no copy of the embedding in any
    precision.
    """
    folder = write_tiny_qwen(tmp_path / "source", hidden=128, vocab_size=1500, layers=1, intermediate=64)
    checkpoint = Checkpoint(folder)
    write_graph(checkpoint, tmp_path / "model.onnx", Blockwise(bits), "fused", 16)
    size = (tmp_path / "model.onnx.data").stat().st_size
    assert size / checkpoint.shape.parameters == pytest.approx(expected, rel=0.05)


def test_bfloat16_and_sharded_checkpoints_are_read(tmp_path: Path, ids: list[int]) -> None:
    folder = write_tiny_qwen(tmp_path / "source", sharded=True)
    assert len(list(folder.glob("*.safetensors"))) > 1
    model = AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "half", max_shard_size="100KB")
    half = Checkpoint(tmp_path / "half")
    found = engine(half, tmp_path, Floating(), "fused").append(ids, list(range(len(ids))))
    np.testing.assert_allclose(found, original_logits(half.folder, ids), atol=1e-4)
