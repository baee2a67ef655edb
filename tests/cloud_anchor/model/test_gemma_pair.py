"""DiffusionGemma and Gemma 3: one vocabulary by content, whose special tokens have other names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloud_anchor.model.prompt_form import ids_apart, prompt_form
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import Selection
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.gguf import tokenizer_files
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.convert.test_gguf import sentencepiece

REAL = "GEMMA3_BUNDLE"
"""Environment variable: the folder of a bundle that `convert` made of Gemma 3."""

NAMES = {"<start_of_turn>": "<|turn>", "<end_of_turn>": "<turn|>", "<bos>": "<start>", "<end>": "<over>"}
"""Of special tokens, as the other side spells them."""


def respelled(data: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json whose special tokens have other names and whose spaces other signs, id for id."""
    found: dict[str, Any] = json.loads(json.dumps(data))

    def name(text: str) -> str:
        return NAMES.get(text, text.replace("<unused", "<spare"))

    special = {token["id"] for token in found["added_tokens"] if token["special"]}
    for token in found["added_tokens"]:
        token["content"] = name(token["content"]) if token["id"] in special else token["content"]
    vocab = found["model"]["vocab"]
    found["model"]["vocab"] = {name(text) if id_ in special else text: id_ for text, id_ in vocab.items()}
    return found


def bundle_of(data: dict[str, Any]) -> Bundle:
    """As much of a bundle as a vocabulary is compared with."""
    template = ChatTemplate.from_json(
        {
            "default_system": None,
            "system": ["", ""],
            "user": ["<bos>", "<end>"],
            "assistant": ["<bos>", "<end>"],
            "generation": "<bos>",
        }
    )
    form = PromptForm(Tokenizer.from_json(json.dumps(data)), template, Contract.of(data, template.to_json()))
    return cast(Bundle, SimpleNamespace(form=form, contract=form.contract, template=template, path="bundle"))


@pytest.fixture
def data() -> dict[str, Any]:
    found: dict[str, Any] = tokenizer_files(sentencepiece(), "here")["tokenizer.json"]
    return found


def folder_of(path: Path, data: dict[str, Any]) -> Path:
    (path / "tokenizer.json").write_text(json.dumps(data))
    return path


def test_one_vocabulary_by_content(data: dict[str, Any], tmp_path: Path) -> None:
    bundle = bundle_of(data)
    other = respelled(data)
    assert other["model"]["vocab"] != data["model"]["vocab"]
    assert ids_apart(folder_of(tmp_path, data), bundle) == frozenset()
    assert ids_apart(folder_of(tmp_path, other), bundle) == frozenset()


def test_what_only_one_side_has_is_no_token_of_an_answer(data: dict[str, Any], tmp_path: Path) -> None:
    bundle, other = bundle_of(data), respelled(data)
    word = other["model"]["vocab"]["us"]
    other["added_tokens"].append({**other["added_tokens"][0], "id": word, "content": "us"})
    assert ids_apart(folder_of(tmp_path, other), bundle) == {word}
    adopted: list[Contract] = []
    model = SimpleNamespace(vocab_rows=1000, adopt=adopted.append)
    form = prompt_form(cast(Any, model), tmp_path, bundle)
    assert form is bundle.form
    assert bundle.contract.is_ordinary(word)
    assert not adopted[0].is_ordinary(word)
    assert adopted[0].eos_ids == bundle.contract.eos_ids


@pytest.mark.parametrize(
    "change",
    [
        lambda vocab, special: vocab.update({"us": vocab["ll"], "ll": vocab["us"]}),  # swapped
        lambda vocab, special: special.update(special=False),  # the end of a turn would be text
    ],
    ids=["swapped", "a marker is text"],
)
def test_other_vocabularies(
    data: dict[str, Any], tmp_path: Path, change: Callable[[dict[str, int], dict[str, Any]], object]
) -> None:
    other = respelled(data)
    end = next(token for token in other["added_tokens"] if token["content"] == "<over>")
    change(other["model"]["vocab"], end)
    assert ids_apart(folder_of(tmp_path, other), bundle_of(data)) is None


def test_the_vocabularies_of_other_families_differ(
    edge_bundle: Path, data: dict[str, Any], tmp_path: Path
) -> None:
    assert ids_apart(folder_of(tmp_path, data), Bundle.open(edge_bundle)) is None


def test_a_real_gemma_3_fills_payloads_of_a_random_diffusion_gemma(tmp_path: Path) -> None:
    """With Gemma's whole vocabulary, respelled: its ids go through the payload as they are."""
    if REAL not in os.environ:
        pytest.skip(f"no bundle of Gemma 3: set {REAL}")
    bundle = Bundle.open(os.environ[REAL])
    data = json.loads((bundle.path / "tokenizer.json").read_text("utf-8"))
    folder = make_diffusion_gemma(tmp_path / "model", canvas=32, rows=262_144)
    folder_of(folder, respelled(data))
    end = {"eos_token_id": [1, 106], "pad_token_id": 0}
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**settings, **end}))
    edge = EdgeRuntime(bundle, threads=1)
    pipeline = Pipeline.open(str(folder), edge=edge, device="cpu")
    assert pipeline.translation is None
    assert pipeline.form.contract.identity == bundle.contract.identity
    config = DenoiseConfig(canvas=32, total_steps=12, steps=6)
    for select in ("confidence", "edge-aware", "paper"):
        selection = Selection(select, EdgeAwareConfig(threshold=0))  # random weights are sure of nothing
        (result,) = pipeline.make(["Why is the sky blue?"], config, selection)
        assert len(result.anchors)
        received = edge.read(pipeline.payload(result), "Why is the sky blue?")
        assert received.anchors == result.anchors
        filled = [token.id for token in edge.fill(received, FillOptions(max_tokens=32))]
        assert len(filled) > max(received.anchors.positions)
        assert all(filled[at] == token for at, token in received.anchors.by_position.items())
