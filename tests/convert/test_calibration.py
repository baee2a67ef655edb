"""Calibrated int4: the moments of the layers' inputs, the texts, and the conversion that uses both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from convert import convert as run_convert
from convert.check.prompts import DEFAULT_PROMPTS
from convert.check.reference import Reference, ReferenceText
from convert.check.verify import Thresholds, compare
from convert.conversion import bundle_shape
from convert.errors import SourceError
from convert.graph.calibrated import by_gptq, gptq, gptq_bytes
from convert.graph.calibration_texts import conversation_ids, conversations
from convert.graph.decoder import write_graph
from convert.graph.moments import InputMoments
from convert.graph.quantisation import quantize
from convert.graph.weights import Blockwise
from convert.preflight import estimate
from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original
from convert.source.tokenizer import Identity, read_identity
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_engine import OrtEngine
from tests.checkpoints import write_tiny_decoder, write_tiny_qwen

TEXTS = [[5, 4, 3, 2], [9, 8]]
MATRICES = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


@pytest.fixture(scope="module")
def identity(checkpoint: Checkpoint) -> Identity:
    return read_identity(checkpoint, ())


@pytest.mark.parametrize("family", ["Qwen2", "Qwen3", "Llama", "Gemma3"])
def test_the_moments_are_those_of_the_whole_model(family: str, tmp_path: Path) -> None:
    """Layer by layer against one pass of the whole model with a hook on every matrix."""
    layers = {"sliding_window": 2, "layer_types": ["sliding_attention", "full_attention"]}
    folder = write_tiny_decoder(tmp_path, family, **(layers if family == "Gemma3" else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs: dict[str, list[torch.Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda _, args, name=name: inputs.setdefault(name, []).append(args[0][0])
            )
    with torch.inference_mode():
        for ids in TEXTS:
            model(torch.tensor([ids]))
    moments = InputMoments(Checkpoint(folder), TEXTS)
    for layer in range(2):
        for part in MATRICES:
            x = torch.cat(inputs[f"model.layers.{layer}.{part.replace('qkv', 'v')}"]).double().numpy()
            found = moments.of(f"model.layers.{layer}.{part}")
            np.testing.assert_allclose(found, x.T @ x / 6, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="1"):
        moments.of("model.layers.0.mlp.up_proj")


@given(columns=st.integers(1, 5000), block=st.sampled_from([32, 64, 128]))
def test_a_block_divides_the_columns_or_is_the_smallest(columns: int, block: int) -> None:
    found = Blockwise(4, block).block_of(columns)
    assert found in (32, 64, 128)
    assert found <= block
    assert found == 32 or columns % found == 0
    assert found == block or columns % (2 * found)


def test_the_texts_are_none_of_the_verification(identity: Identity) -> None:
    seen = " ".join(text for pair in conversations() for text in pair)
    for prompt in DEFAULT_PROMPTS:
        words = prompt.split()
        runs = [" ".join(words[at : at + 5]) for at in range(len(words) - 4)]
        assert not [run for run in runs if run in seen]
    for ids, (question, answer) in zip(conversation_ids(identity), conversations(), strict=True):
        assert ids[: len(identity.ids(question))] == identity.ids(question)
        assert identity.tokenizer.decode(ids).endswith(answer)


def test_blocks_of_the_graph(bundle_folder: Path) -> None:
    nodes = onnx.load(bundle_folder / "int4" / "model.onnx", load_external_data=False).graph.node
    assert {a.i for node in nodes for a in node.attribute if a.name == "block_size"} == {64}


def test_calibration_pays(tmp_path: Path) -> None:
    """Against the same blocks rounded, on a trained model and a text that the calibration has not seen."""
    checkpoint = Checkpoint(Path(__file__).parents[2] / "cloud_anchor" / "weights" / "tiny" / "tiny-qwen")
    identity = read_identity(checkpoint, ())
    ids = identity.ids(DEFAULT_PROMPTS[0])
    with torch.inference_mode():
        logits = load_original(checkpoint).forward(torch.tensor([ids])).logits[0].numpy()
    reference = Reference([ReferenceText(ids, len(ids) - 1)], logits)
    found = []
    for layers in (None, by_gptq(InputMoments(checkpoint, conversation_ids(identity)))):
        write_graph(checkpoint, tmp_path / "model.onnx", Blockwise(4, 64, layers=layers), "fused", 256)
        engine = OrtEngine(
            tmp_path / "model.onnx", bundle_shape(checkpoint.shape, "", ""), context=256, threads=1
        )
        found.append(compare(engine, reference).mean_kl)
    assert found[1] < 0.7 * found[0]


def test_inputs_that_are_always_zero_are_rounded() -> None:
    weight = np.random.default_rng(5).standard_normal((8, 64)).astype(np.float32)
    found, plain = gptq(weight, 64, np.zeros((64, 64))), quantize(weight, 4, 64)
    np.testing.assert_array_equal(found.packed, plain.packed)


def test_an_original_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(write_tiny_qwen(tmp_path, std=1e15))
    with pytest.raises(SourceError):
        InputMoments(checkpoint, TEXTS).of("model.layers.1.mlp.down_proj")


def test_widths_that_64_does_not_divide(tmp_path: Path) -> None:
    folder = write_tiny_qwen(tmp_path / "source", hidden=96, heads=6, kv_heads=2, intermediate=192)
    out = tmp_path / "out"
    run_convert(folder, out, variants=["int4"], thresholds={"int4": Thresholds()}, threads=1)
    nodes = onnx.load(out / "int4" / "model.onnx", load_external_data=False).graph.node
    assert {a.i for node in nodes for a in node.attribute if a.name == "block_size"} == {32, 64}
    assert np.isfinite(OrtEngine.open(Bundle.open(out), threads=1).append([1, 2, 3], [2])).all()


def test_the_preflight_knows_of_the_calibration(checkpoint: Checkpoint, tmp_path: Path) -> None:
    def memory(*variants: str) -> int:
        return estimate(checkpoint, variants, 512, 1, tmp_path).memory

    shape = checkpoint.shape
    assert gptq_bytes(shape) >= 8 * 4 * shape.intermediate_size**2
    assert memory("int4") > memory("int8") + gptq_bytes(shape)
