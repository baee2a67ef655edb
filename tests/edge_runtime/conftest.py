"""Bundles for the edge's tests: one whose graph is no model, and one of a random checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.bundle.bundle import TEMPLATE as TEMPLATE_NAME
from edge_runtime.bundle.bundle import Manifest, ModelShape, Variant, contract_of, file_record
from lab.benches.random_checkpoint import write_tokenizer
from tests.checkpoints import write_tiny_qwen

TEMPLATE = {
    "default_system": "You are a small test model.",
    "system": ["<|im_start|>system\n", "<|im_end|>\n"],
    "user": ["<|im_start|>user\n", "<|im_end|>\n"],
    "assistant": ["<|im_start|>assistant\n", "<|im_end|>\n"],
    "generation": "<|im_start|>assistant\n",
}


@pytest.fixture(scope="session")
def template_json() -> dict[str, Any]:
    return TEMPLATE


@pytest.fixture(scope="session")
def make_bundle() -> Callable[..., Path]:
    """make_bundle(folder, variants, ...) writes the manifest around the graphs that are already there."""

    def make(folder: Path, variants: Sequence[str], *, vocab_size: int = 300, **shape: int) -> Path:
        write_tokenizer(folder, vocab_size=vocab_size)
        (folder / "tokenizer_config.json").unlink()
        (folder / TEMPLATE_NAME).write_text(json.dumps(TEMPLATE))
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
        sizes |= {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": vocab_size + 20}
        manifest = Manifest(
            model=ModelShape("Qwen2ForCausalLM", **{**sizes, **shape}, id="test/tiny", revision="0"),
            context=512,
            contract=contract_of(folder),
            default_variant=variants[0],
            variants={
                name: Variant(
                    f"{name}/model.onnx",
                    {f"{name}/{file.name}": file_record(file) for file in sorted((folder / name).iterdir())},
                    {},
                    portable=next(
                        f"{name}/{file}"
                        for file in ("portable.onnx", "model.onnx")
                        if (folder / name / file).is_file()
                    ),
                )
                for name in variants
            },
            files={name: file_record(folder / name) for name in ("tokenizer.json", TEMPLATE_NAME)},
            tools={"test": "1"},
        )
        (folder / "bundle.json").write_text(json.dumps(manifest.to_json()))
        return folder

    return make


@pytest.fixture(scope="session")
def plain_bundle(make_bundle: Callable[..., Path]) -> Callable[..., Path]:
    """plain_bundle(folder) is a bundle whose graph is no model: enough for what comes before loading."""

    def make(folder: Path, graph: bytes = b"not a graph", **options: int) -> Path:
        (folder / "int8").mkdir(parents=True)
        (folder / "int8" / "model.onnx").write_bytes(graph)
        (folder / "int8" / "model.onnx.data").write_bytes(bytes(100))
        return make_bundle(folder, ["int8"], **options)

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 checkpoint."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return write_tiny_qwen(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def tiny_bundle(
    request: pytest.FixtureRequest,
    make_bundle: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The checkpoint as a bundle with the variants fp32, int8 and int4.

    Where there is no torch, $EDGE_TEST_BUNDLE may name one that was made elsewhere.
    """
    if made := os.environ.get("EDGE_TEST_BUNDLE"):
        return Path(made)
    pytest.importorskip("onnx")
    from convert.graph.decoder import write_graph
    from convert.graph.portable import write_portable_graph
    from convert.graph.weights import Blockwise, Floating
    from convert.source.checkpoint import Checkpoint

    checkpoint = Checkpoint(request.getfixturevalue("tiny_checkpoint"))
    folder = tmp_path_factory.mktemp("bundles") / "tiny-random"
    for name, weights in (("fp32", Floating()), ("int8", Blockwise(8)), ("int4", Blockwise(4))):
        (folder / name).mkdir(parents=True)
        write_graph(checkpoint, folder / name / "model.onnx", weights, "fused", 512)
        write_portable_graph(folder / name / "model.onnx")
    return make_bundle(folder, ["fp32", "int8", "int4"])
