"""Bundles: what opens, and one named error for each way in which one cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from math import nan as NAN
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


@pytest.mark.parametrize(
    ("error", "place", "variant"),
    [
        (BundleMissingError, "nowhere", None),
        (BundleMissingError, ".", None),
        (BundleVariantError, "bundle", "fp64"),
    ],
)
def test_what_is_not_there(folder: Path, error: type[BundleError], place: str, variant: str | None) -> None:
    with pytest.raises(error):
        Bundle.open(folder.parent / place, variant)
    with pytest.raises(BundleMissingError):
        Bundle.open("nowhere")


@pytest.mark.parametrize("name", ["tokenizer.json", "int8/model.onnx.data"])
@pytest.mark.parametrize("data", [None, bytes(99)], ids=["missing", "cut"])
def test_a_missing_or_cut_file(folder: Path, name: str, data: bytes | None) -> None:
    (folder / name).unlink()
    if data:
        (folder / name).write_bytes(data)
    with pytest.raises(BundleFileError):
        Bundle.open(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.json", "int8/model.onnx.data"])
def test_a_changed_file(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(BundleHashError):
        Bundle.open(folder)
    assert Bundle.open(folder, verify=False).variant_name == "int8"


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


NO_HASH = {"size": 1, "sha256": ""}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(schema=4),
        lambda d: d.pop("schema"),
        lambda d: d.pop("model"),
        lambda d: d["model"].update(head_dim="16"),
        lambda d: d["model"].update(head_dim=0),
        lambda d: d["model"].update(num_hidden_layers=10**7),
        lambda d: d.update(context=True),
        lambda d: d.update(context=-1),
        lambda d: d.update(contract={}),
        lambda d: d["contract"].update(special=3),
        *(partial(lambda size, d: d["contract"].update(vocab_size=size), n) for n in (1e400, NAN, None, [])),
        lambda d: d.update(default_variant="fp32"),
        lambda d: d.update(variants=[]),
        lambda d: d["variants"]["int8"].pop("graph"),
        lambda d: d["variants"]["int8"].update(graph="x.onnx"),
        lambda d: d["variants"]["int8"].update(graph="int8/model.onnx.data"),
        lambda d: d["variants"]["int8"]["files"].update({"../x": {}}),
        lambda d: d["files"].update({"../x": NO_HASH}),
        lambda d: d["files"].update({"/etc/x": NO_HASH}),
        lambda d: d["files"].pop("tokenizer.json"),
        lambda d: d["files"].update({"x": 1}),
        lambda d: d.update(tools=None),
    ],
)
def test_a_broken_manifest_is_refused(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    edit(folder, change)
    with pytest.raises(BundleSchemaError):
        Bundle.open(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\xff", None])
def test_a_manifest_that_is_no_object_or_huge(folder: Path, text: str | None) -> None:
    with (folder / "bundle.json").open("wb") as file:
        if text is None:
            file.truncate(1 << 40)  # a hole: it takes no room on disk
        else:
            file.write(text.encode("latin-1"))
    with pytest.raises(BundleSchemaError):
        Bundle.open(folder)


def test_a_manifest_with_another_contract_than_its_tokenizer(folder: Path) -> None:
    edit(folder, lambda d: d["contract"].update(vocab_size=299))
    with pytest.raises(BundleContractError):
        Bundle.open(folder).verify_contract()


def test_file_record(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    record = file_record(tmp_path / "x")
    assert record.size == 3
    assert record.sha256.startswith("ba7816bf8f01cfea")
    with pytest.raises(BundleFileError):
        file_record(tmp_path / "y")
