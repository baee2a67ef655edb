"""Bundles: what opens, and one named error for each way in which one cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.bundle.bundle import Bundle, Manifest, file_record, read_manifest
from edge_runtime.errors import (
    BundleContractError,
    BundleError,
    BundleFileError,
    BundleHashError,
    BundleMissingError,
    BundleSchemaError,
    BundleVariantError,
)

MakeBundle = Callable[..., Path]


@pytest.fixture
def folder(plain_bundle: MakeBundle, tmp_path: Path) -> Path:
    return plain_bundle(tmp_path / "bundle")


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "bundle.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_a_sound_bundle_opens(folder: Path) -> None:
    bundle = Bundle.open(folder)
    assert bundle.variant_name == "int8"
    assert bundle.graph_path == folder / "int8" / "model.onnx"
    assert bundle.template.generation == "<|im_start|>assistant\n"
    assert bundle.tokenizer.decode(bundle.tokenizer.encode("river")) == "river"
    assert bundle.contract.vocab_size == 300
    bundle.verify_contract()


def test_a_manifest_comes_back_from_its_json(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_a_missing_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleMissingError, match="expected a model bundle, found no such folder"):
        Bundle.open(tmp_path / "nowhere")
    with pytest.raises(BundleMissingError, match="these ship: testbed, testbed-qwen, tiny, tiny-qwen"):
        Bundle.open("nowhere")
    with pytest.raises(BundleMissingError, match=r"found a folder without bundle\.json"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "int8/model.onnx.data"])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BundleFileError, match=f"{name}: .* missing"):
        Bundle.open(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.json", "int8/model.onnx.data"])
def test_a_changed_file(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(BundleHashError, match=f"{name}: expected SHA-256 [0-9a-f]{{64}}, found"):
        Bundle.open(folder)
    assert Bundle.open(folder, verify=False).variant_name == "int8"


def test_a_cut_file(folder: Path) -> None:
    (folder / "int8" / "model.onnx.data").write_bytes(bytes(99))
    with pytest.raises(BundleFileError, match="expected 100 bytes, found 99"):
        Bundle.open(folder)


def weights_in(*names: str, key: bytes = b"\x0a\x08location\x12") -> bytes:
    """Bytes of a graph that reads its weights from these files."""
    return b"".join(key + bytes([len(name)]) + name.encode() for name in names)


@pytest.mark.parametrize(
    "graph",
    [
        weights_in("../../x"),
        weights_in("/etc/passwd"),
        weights_in("model.onnx.data", "model.onnx.more"),
        weights_in("model.onnx.data", key=b"\x0a\x88\x00location\x12"),
    ],
)
def test_weights_outside_the_manifest(plain_bundle: MakeBundle, tmp_path: Path, graph: bytes) -> None:
    folder = plain_bundle(tmp_path / "bundle", graph=graph)
    (folder / "int8" / "model.onnx.more").write_bytes(bytes(9))
    with pytest.raises(BundleFileError):
        Bundle.open(folder)


def test_weights_that_the_manifest_lists(plain_bundle: MakeBundle, tmp_path: Path) -> None:
    Bundle.open(plain_bundle(tmp_path / "bundle", graph=weights_in("model.onnx.data")))


def test_an_unknown_variant(folder: Path) -> None:
    with pytest.raises(BundleVariantError, match="expected a variant of int8, found 'fp64'"):
        Bundle.open(folder, "fp64")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=4), "expected schema 1, found 4"),
        (lambda d: d.pop("schema"), "expected schema 1, found None"),
        (lambda d: d.pop("model"), "expected model of type dict"),
        (lambda d: d["model"].update(head_dim="16"), r"expected model\.head_dim of type int, found '16'"),
        (lambda d: d["model"].update(head_dim=0), "head_dim"),
        (lambda d: d["model"].update(num_hidden_layers=10**7), "num_hidden_layers"),
        (lambda d: d.update(context=True), "expected context of type int, found True"),
        (lambda d: d.update(context=-1), "expected a context above 0"),
        (lambda d: d.update(contract={}), "the contract is incomplete"),
        (lambda d: d.update(contract={**d["contract"], "special": 3}), "the contract is incomplete"),
        (lambda d: d.update(default_variant="fp32"), r"default_variant among \['int8'\], found 'fp32'"),
        (lambda d: d.update(variants=[]), "expected variants of type dict"),
        (lambda d: d["variants"]["int8"].pop("graph"), r"expected variants\.int8\.graph of type str"),
        (lambda d: d["variants"]["int8"].update(graph="x.onnx"), "expected 'x.onnx' among"),
        (lambda d: d["variants"]["int8"]["files"].update({"../x": {}}), "expected .* of type int"),
        (
            lambda d: d["files"].update({"../x": {"size": 1, "sha256": ""}}),
            r"a path inside the bundle, found '\.\./x'",
        ),
        (lambda d: d["files"].update({"/etc/x": {"size": 1, "sha256": ""}}), "a path inside the bundle"),
        (lambda d: d["files"].pop("tokenizer.json"), "expected 'tokenizer.json' among files"),
        (lambda d: d["files"].update({"x": 1}), r"expected files\.x of type dict, found 1"),
        (lambda d: d.update(tools=None), "expected tools of type dict"),
    ],
)
def test_a_broken_manifest_is_refused_by_field(
    folder: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    edit(folder, change)
    with pytest.raises(BundleSchemaError, match=message):
        Bundle.open(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\xff"])
def test_a_manifest_that_is_no_object(folder: Path, text: str) -> None:
    (folder / "bundle.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BundleSchemaError, match="expected"):
        Bundle.open(folder)


def test_a_huge_manifest_is_not_read(folder: Path) -> None:
    with (folder / "bundle.json").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on disk
    with pytest.raises(BundleSchemaError, match="expected at most"):
        Bundle.open(folder)


def test_a_manifest_with_another_contract_than_its_tokenizer(folder: Path) -> None:
    edit(folder, lambda d: d["contract"].update(vocab_size=299))
    with pytest.raises(BundleContractError, match=r"states contract .* of 299, .* have .* of 300"):
        Bundle.open(folder).verify_contract()


def test_every_bundle_error_ends_a_command_with_code_4() -> None:
    assert BundleError.exit_code == 4


def test_file_record(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    record = file_record(tmp_path / "x")
    assert record.size == 3
    assert record.sha256.startswith("ba7816bf8f01cfea")
    with pytest.raises(BundleFileError, match="expected a readable file"):
        file_record(tmp_path / "y")


@pytest.mark.parametrize("size", [float("inf"), float("nan"), 1e400, None, []])
def test_a_contract_whose_size_is_no_number_is_refused(folder: Path, size: Any) -> None:
    edit(folder, lambda data: data["contract"].update(vocab_size=size))
    with pytest.raises(BundleSchemaError, match="the contract is incomplete"):
        Bundle.open(folder)
