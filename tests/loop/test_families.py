"""Every family by commands alone: a checkpoint as the hub has it, its payload, and a small sibling that fills
it, of random weights all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cloud_anchor.anchor import main as anchor
from convert.__main__ import main as convert
from edge_runtime.fill import main as fill
from edge_runtime.text.gguf import tokenizer_files
from tests.checkpoints import write_tiny_decoder
from tests.cloud_anchor.cloud_checkpoints import (
    make_block_model,
    make_diffusion_gemma,
    make_dream,
    make_llada,
    without_tokenizer_json,
)
from tests.cloud_anchor.model.test_gemma_pair import respelled
from tests.convert.test_gguf import sentencepiece

GEMMA_TEMPLATE = (
    "{% for message in messages %}<bos>{{ message.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<bos>{% endif %}"
)
GEMMA_END = {"eos_token_id": [1], "bos_token_id": 0, "pad_token_id": 0}


def with_gemmas_vocabulary(folder: Path, *, published: bool) -> Path:
    """The folder with a vocabulary of SentencePiece's kind; published: as DiffusionGemma's spells it."""
    files = tokenizer_files(sentencepiece(), "here")
    if published:
        files["tokenizer.json"] = respelled(files["tokenizer.json"])
    else:
        files["tokenizer_config.json"]["chat_template"] = GEMMA_TEMPLATE
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(settings | GEMMA_END))
    return folder


def qwen3(path: Path) -> Path:
    return write_tiny_decoder(path, "Qwen3", seed=7)


def gemma3(path: Path) -> Path:
    sizes = {"layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 9}
    made = write_tiny_decoder(path, "Gemma3", positions=2048, **sizes)
    return with_gemmas_vocabulary(made, published=False)


class Pair(NamedTuple):
    """How a checkpoint is written, and its sibling's: or the fixture that has its bundle."""

    model: Callable[[Path], Path]
    sibling: Callable[[Path], Path] | str


PAIRS = {
    "Dream": Pair(lambda path: without_tokenizer_json(make_dream(path, sharded=True)), "edge_bundle"),
    "LLaDA": Pair(make_llada, "other_edge_bundle"),  # no sibling has its vocabulary: payloads are translated
    "Fast-dLLM v2": Pair(lambda path: make_block_model(path, "Fast_dLLM_Qwen", sharded=True), "edge_bundle"),
    "SDAR": Pair(lambda path: make_block_model(path, "sdar", sharded=True), qwen3),
    "DiffusionGemma": Pair(
        lambda path: with_gemmas_vocabulary(make_diffusion_gemma(path), published=True), gemma3
    ),
}


@pytest.fixture
def bundle(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sibling, out = PAIRS[family].sibling, str(tmp_path / "bundle")
    if isinstance(sibling, str):
        return str(request.getfixturevalue(sibling))
    command = [str(sibling(tmp_path / "sibling")), "-o", out, "--variants", "fp32"]
    assert convert(command) == 0
    return out


@pytest.mark.parametrize("family", PAIRS)
def test_a_sibling_fills_what_the_command_wrote(
    family: str, bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, payload = PAIRS[family].model(tmp_path / "model"), str(tmp_path / "payload.bin")
    capsys.readouterr()

    def run(command: Callable[[list[str]], int], *options: str) -> dict[str, Any]:
        assert command([*options, "--edge", bundle, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    plan = ["--canvas", "64", "--total-steps", "64", "--steps", "14", "--threshold", "0", "--device", "cpu"]
    made = run(anchor, "--model", str(model), "--prompt", "Hello world", *plan, "--confidence", "-o", payload)
    sent = {each["position"]: each["id"] for each in made["anchors"]}
    filled = {token["position"]: token["id"] for token in run(fill, payload)["tokens"]}
    assert sent
    assert sent == {position: filled[position] for position in sent}
