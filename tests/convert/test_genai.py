"""The bundle's folder opens in onnxruntime-genai and gives the same answers as in `OrtEngine`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.doctor import greedy_answer
from edge_runtime.engine.ort_engine import OrtEngine

genai = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")

QUESTION = "How many loaves are 24 + 17?"


def generate(model: object, prompt: list[int], tokens: int) -> list[int]:
    generator = genai.Generator(model, genai.GeneratorParams(model))
    generator.append_tokens(prompt)
    answer: list[int] = []
    while not generator.is_done() and len(answer) < tokens:
        generator.generate_next_token()
        answer.append(int(generator.get_next_tokens()[0]))
    return answer


@pytest.mark.parametrize("variant", ["int8", "int4", "fp16"])
def test_it_answers_as_our_engine_does(variant: str, bundle_folder: Path) -> None:
    config = genai.Config(str(bundle_folder))
    config.overlay(json.dumps({"model": {"decoder": {"filename": f"{variant}/genai.onnx"}}}))
    bundle = Bundle.open(bundle_folder, variant)
    prompt = bundle.form.ids(QUESTION)
    expected = greedy_answer(OrtEngine.open(bundle, threads=1), bundle.contract, prompt, 24)
    assert generate(genai.Model(config), prompt, 24)[: len(expected)] == expected
    assert len(expected) >= 8


def test_the_folder_opens_as_it_is_with_tokenizer_and_template(bundle_folder: Path) -> None:
    bundle = Bundle.open(bundle_folder)
    model = genai.Model(str(bundle_folder))
    tokenizer = genai.Tokenizer(model)
    text = bundle.template.render(QUESTION)
    messages = json.dumps([{"role": "user", "content": QUESTION}])
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True) == text
    assert list(tokenizer.encode(text)) == bundle.tokenizer.encode(text)
    config = json.loads((bundle_folder / "genai_config.json").read_text(encoding="utf-8"))
    assert config["search"]["max_length"] == bundle.context == 512
    assert config["model"]["decoder"]["filename"] == f"{bundle.manifest.default_variant}/genai.onnx"
