"""SmolLM2-135M-Instruct's real weights: logits equal transformers', and the bundle answers a question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")

from convert.source.gguf import GgufFile
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.ort_engine import OrtEngine
from payload import AnchorSet, Shared, decode, encode

pytestmark = pytest.mark.slow

QUESTION = "What is the capital of France?"


def answer(bundle: Bundle, anchors: AnchorSet) -> str:
    prompt = bundle.form.ids(QUESTION)
    tokens = fill(OrtEngine.open(bundle, threads=1), prompt, anchors, FillOptions(max_tokens=16))
    return bundle.tokenizer.decode(token.id for token in tokens)


def test_the_contract_has_the_special_tokens_below_the_words(smollm2_bundle: Path) -> None:
    opened = Bundle.open(smollm2_bundle)
    opened.verify_contract()
    contract = opened.contract
    assert contract.vocab_size == 49_152
    assert contract.reserved == set(range(17)) == opened.tokenizer.special_ids
    assert contract.eos_ids == {2}
    ids = opened.tokenizer.encode("In 2019 the naïve 日本語 🎈 cost $3.75.\n\n\tdef f(x):")
    assert opened.tokenizer.decode(ids) == "In 2019 the naïve 日本語 🎈 cost $3.75.\n\n\tdef f(x):"
    digits = [opened.tokenizer.decode([id_]) for id_ in opened.tokenizer.encode("2019")]
    assert digits == ["2", "0", "1", "9"]


def test_the_logits_are_those_of_transformers_own_reader(smollm2_source: Path, smollm2_bundle: Path) -> None:
    """Its reader of GGUF files, its tensor names and its Llama: nothing of this package."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = LlamaConfig(**load_gguf_checkpoint(str(smollm2_source))["config"])
    model = LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(str(smollm2_source), return_tensors=True, model_to_load=model)["tensors"]
    assert len(tensors) >= len(GgufFile(smollm2_source).shape.tensor_shapes())
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    opened = Bundle.open(smollm2_bundle, "fp32")
    ids = opened.tokenizer.encode(opened.template.render(QUESTION) + "The capital of France is Paris.")
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    found = OrtEngine.open(opened, threads=1).append(ids, list(range(len(ids))))
    np.testing.assert_allclose(
        found, expected, rtol=1e-5, atol=1e-4
    )  # float32: relative to logits of 10 and more


def test_it_knows_the_capital_of_france(smollm2_bundle: Path) -> None:
    opened = Bundle.open(smollm2_bundle, "fp32")
    assert answer(opened, AnchorSet.empty(16, opened.contract)) == "The capital of France is Paris."


@pytest.mark.parametrize("variant", ["fp32", "int8", "int4"])
def test_every_variant_knows_it_once_the_answer_has_begun(variant: str, smollm2_bundle: Path) -> None:
    """The first word is nearly a tie: 25.3 for "The", 25.2 for "L"."""
    opened = Bundle.open(smollm2_bundle, variant)
    (first,) = opened.tokenizer.encode("The")
    assert "Paris" in answer(opened, AnchorSet((0,), (first,), 16, opened.contract))


def test_anchors_in_its_vocabulary_cross_the_wire_and_are_forced(smollm2_bundle: Path) -> None:
    opened = Bundle.open(smollm2_bundle)
    words = opened.tokenizer.encode(" Lyon")
    anchors = AnchorSet((5, 6)[: len(words)], tuple(words[:2]), 16, opened.contract)
    prompt = opened.form.ids(QUESTION)
    shared = Shared(opened.contract, prompt, opened.tokenizer)
    assert decode(encode(anchors, shared), shared) == anchors
    assert "Lyon" in answer(opened, anchors)
