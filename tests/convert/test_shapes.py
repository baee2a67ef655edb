"""The published shapes: Qwen2.5-0.5B cut short with its whole vocabulary, larger models' attention."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convert import Thresholds
from convert import convert as run_convert
from convert.check.prompts import DEFAULT_PROMPTS
from convert.source.checkpoint import shape_of
from convert.variants import RECIPES
from edge_runtime.bundle.bundle import Bundle, Manifest
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.base import Engine
from edge_runtime.engine.genai_engine import GenaiEngine
from edge_runtime.engine.ort_engine import OrtEngine
from lab.benches.random_checkpoint import SHAPES, write_random_checkpoint
from payload import AnchorSet

# Random weights of this width give nearly equal logits: what counts here is that the distributions agree.
BOUNDS = {
    "fp32": Thresholds(top1=0.99, mean_kl=1e-5, max_delta=0.01),
    "int8": Thresholds(top1=0.8, mean_kl=1e-2),
    "int4": Thresholds(mean_kl=0.3),
}


QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 32_768}


@pytest.mark.parametrize(("size", "millions"), [("0.5B", 494.0), ("1.5B", 1543.7), ("3B", 3085.9)])
def test_the_shapes_have_the_published_number_of_parameters(size: str, millions: float) -> None:
    assert shape_of(QWEN2 | SHAPES[size], size).parameters / 1e6 == pytest.approx(millions, abs=0.1)


@pytest.mark.parametrize(("variant", "limit"), [("int8", 560e6), ("int4", 310e6), ("fp16", 990e6)])
def test_planned_size_of_the_half_billion_model(variant: str, limit: float) -> None:
    shape = shape_of(QWEN2 | SHAPES["0.5B"], "0.5B")
    assert RECIPES[variant].planned_bytes(shape, 2048) < limit


SHORT = DEFAULT_PROMPTS[2:4]
"""Enough for 256 positions: the small tokenizer makes a token of nearly every byte."""


def converted(folder: Path, out: Path, *names: str) -> Manifest:
    bounds = {name: BOUNDS[name] for name in names}
    options: dict[str, Any] = {"prompts": SHORT, "context": 512, "threads": 1}
    return run_convert(folder, out, variants=names, thresholds=bounds, **options)


def test_a_layer_of_a_larger_sibling(tmp_path: Path) -> None:
    folder = write_random_checkpoint(
        tmp_path / "source", "1.5B", num_hidden_layers=1, vocab_size=400, intermediate_size=512
    )
    manifest = converted(folder, tmp_path / "bundle", "fp32", "int4")
    assert manifest.model.head_dim == 128
    assert manifest.model.num_key_value_heads == 2
    figures = manifest.variants["fp32"].verification
    assert figures["max_delta"] < 1e-4


@pytest.mark.slow
def test_a_layer_with_the_whole_vocabulary(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "source", "0.5B", num_hidden_layers=1)
    bundle = tmp_path / "bundle"
    names = ("fp32", "int8", "int4")
    manifest = converted(folder, bundle, *names)
    embedding = 151_936 * 896
    layers = 14_909_440
    for name in names:
        size = sum(record.size for record in manifest.variants[name].files.values())
        assert size == pytest.approx((embedding + layers) * RECIPES[name].bytes_per_weight, rel=0.02)
        opened = Bundle.open(bundle, name, verify=False)
        assert opened.manifest.model.vocab_size == 151_936
    kl = {name: variant.verification["mean_kl"] for name, variant in manifest.variants.items()}
    assert kl["fp32"] < 1e-8 < kl["int8"] < kl["int4"]
    assert np.isfinite(list(kl.values())).all()
    forced_answers_are_those_of_pytorch(folder, Bundle.open(bundle, "fp32", verify=False))


def forced_answers_are_those_of_pytorch(checkpoint: Path, bundle: Bundle) -> None:
    """Both engines against PyTorch, which sees the whole text anew for every token."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    random = np.random.default_rng(0)
    prompt = [int(i) for i in random.integers(0, 300, 20)]
    places = sorted(int(p) for p in random.permutation(24)[:8])
    anchors = AnchorSet(
        tuple(places), tuple(int(i) for i in random.integers(0, 300, 8)), 24, bundle.contract, 24
    )
    forced = anchors.by_position
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    text: list[int] = list(prompt)
    margins: list[float] = []
    for position in range(24):
        with torch.no_grad():
            logits = model(torch.tensor([text]), logits_to_keep=1).logits[0, 0].clone()
        logits[sorted(bundle.contract.eos_ids)] = -torch.inf
        best, second = logits.topk(2).values.tolist()
        margins.append(best - second)
        text.append(forced.get(position, int(logits.argmax())))
    assert min(margins) > 1e-4, "choose another seed: two tokens are equally likely"
    engines: list[Engine] = [OrtEngine.open(bundle, threads=1)]
    if importlib.util.find_spec("onnxruntime_genai"):
        engines.append(GenaiEngine.open(bundle, threads=1))
    for engine in engines:
        found = list(fill(engine, prompt, anchors, FillOptions(score_anchors=False)))
        assert [token.id for token in found] == text[len(prompt) :]
