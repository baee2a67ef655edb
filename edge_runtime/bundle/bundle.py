"""Bundle: a folder with everything that the device needs of a model.

    bundle.json            shapes, variants, contract, SHA-256 of every other file
    tokenizer.json         byte-level BPE
    chat_template.json     the template in compiled form; its Jinja original lies beside it
    int8/model.onnx ...    one folder per variant: a graph and its weights

Responsible for verifying the files, and for computing a bundle's contract. Not responsible for choosing a
bundle (see `lookup`), making it (see `convert`) or running it (see `ort_engine`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edge_runtime.bundle.manifest import MANIFEST as MANIFEST
from edge_runtime.bundle.manifest import SCHEMA as SCHEMA
from edge_runtime.bundle.manifest import TEMPLATE as TEMPLATE
from edge_runtime.bundle.manifest import TOKENIZER as TOKENIZER
from edge_runtime.bundle.manifest import FileRecord as FileRecord
from edge_runtime.bundle.manifest import Manifest as Manifest
from edge_runtime.bundle.manifest import ModelShape as ModelShape
from edge_runtime.bundle.manifest import Variant as Variant
from edge_runtime.errors import (
    BundleContractError,
    BundleFileError,
    BundleHashError,
    BundleMissingError,
    BundleSchemaError,
    BundleVariantError,
)
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract, PayloadError

BUNDLES = Path(__file__).parents[1] / "bundles"
"""Folder of the bundles that ship with this package."""

MAX_MANIFEST_BYTES = 4 << 20
"""A manifest is a few kilobytes; a larger file is something else."""


@dataclass(frozen=True)
class Bundle:
    """An opened bundle with one of its variants chosen."""

    path: Path
    manifest: Manifest
    variant_name: str

    @classmethod
    def open(cls, path: str | Path, variant: str | None = None, *, verify: bool = True) -> Bundle:
        """Opens a bundle folder or a shipped bundle by its name, by default with its default variant.

        With `verify`, every file the variant needs must have its size and SHA-256. Raises BundleMissingError,
        BundleSchemaError, BundleVariantError, BundleFileError or BundleHashError.
        """
        folder = bundle_folder(path)
        manifest = read_manifest(folder)
        name = manifest.default_variant if variant is None else variant
        if name not in manifest.variants:
            raise BundleVariantError(
                f"{folder}: expected a variant of {', '.join(sorted(manifest.variants))}, found {name!r}"
            )
        bundle = cls(folder, manifest, name)
        if verify:
            bundle.verify()
        return bundle

    @property
    def variant(self) -> Variant:
        return self.manifest.variants[self.variant_name]

    @property
    def contract(self) -> Contract:
        return self.manifest.contract

    @property
    def context(self) -> int:
        return self.manifest.context

    @property
    def graph_path(self) -> Path:
        """The ONNX file of the chosen variant."""
        return self.path / self.variant.graph

    @property
    def portable_path(self) -> Path:
        """The variant's ONNX file whose logits agree across processors. Raises BundleFileError."""
        if self.variant.portable is None:
            raise BundleFileError(
                f"{self.path}: expected a portable graph of variant {self.variant_name}, found none, as in "
                "bundles of an earlier version: convert the model again, or ask for codec compact"
            )
        return self.path / self.variant.portable

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(self.path / TOKENIZER)

    @cached_property
    def template(self) -> ChatTemplate:
        return ChatTemplate.from_json(_read_json(self.path / TEMPLATE))

    @cached_property
    def form(self) -> PromptForm:
        """How the model reads prompts."""
        return PromptForm(self.tokenizer, self.template, self.contract)

    def verify(self) -> None:
        """Checks size and SHA-256 of the common files and of the chosen variant's, and that its graphs read
        no other file.
        """
        for name, record in {**self.manifest.files, **self.variant.files}.items():
            verify_file(self.path / name, record)
        for name in self.variant.files:
            if name.endswith(".onnx"):
                check_weights(self.path, name, self.variant.files)

    def verify_contract(self) -> None:
        """Checks that the manifest's contract is that of its tokenizer and template.

        For conversion and diagnosis: once a bundle is made its hashes keep them together. Takes 0.3 s for a
        full vocabulary. Raises BundleContractError.
        """
        found = contract_of(self.path, self.contract.ends or ())
        if found != self.contract:
            raise BundleContractError(
                f"{self.path}: {MANIFEST} states contract {self.contract}, "
                f"but its tokenizer and template have {found}. Convert the model again."
            )


def bundle_folder(path: str | Path) -> Path:
    """The folder of a bundle: the path itself, or the shipped bundle of this name where there is no path."""
    folder = Path(path)
    return folder if folder.exists() else shipped_bundles().get(str(path), folder)


def shipped_bundles() -> dict[str, Path]:
    """The shipped bundles by name, and by their pair's: testbed-qwen is testbed's."""
    folders = sorted(path.parent for path in BUNDLES.glob(f"*/{MANIFEST}"))
    return {name: each for each in folders for name in (each.name.partition("-")[0], each.name)}


def read_manifest(folder: Path) -> Manifest:
    """Reads a folder's `bundle.json` and nothing else, which is enough for its contract."""
    path = folder / MANIFEST
    if not path.is_file():
        found = "no such folder" if not folder.is_dir() else f"a folder without {MANIFEST}"
        raise BundleMissingError(
            f"{folder}: expected a model bundle, found {found}; these ship: {', '.join(shipped_bundles())}"
        )
    return Manifest.from_json(_read_json(path, MAX_MANIFEST_BYTES))


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """The content of a manifest that is not in a bundle yet; raises BundleSchemaError for another form."""
    try:
        value = json.loads(data)
        Manifest.from_json(value)
    except (ValueError, RecursionError) as error:
        raise BundleSchemaError(f"{where}: expected {MANIFEST}, found: {error}") from None
    found: dict[str, Any] = value
    return found


def contract_of(folder: Path, ends: Sequence[str] = ()) -> Contract:
    """The contract of tokenizer and compiled chat template in a folder; otherwise as `Contract.of`."""
    tokenizer = _read_json(folder / TOKENIZER)
    template = ChatTemplate.from_json(_read_json(folder / TEMPLATE))
    try:
        return Contract.of(tokenizer, template.to_json(), ends)
    except (PayloadError, KeyError, TypeError) as error:
        raise BundleSchemaError(f"{folder / TOKENIZER}: {error}") from error


def file_record(path: Path) -> FileRecord:
    """Size and SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileRecord(file.tell(), digest)
    except OSError as error:
        raise BundleFileError(f"{path}: expected a readable file, found: {error.strerror}") from error


def verify_file(path: Path, expected: FileRecord) -> None:
    """Raises BundleFileError where a file is missing or of another size, BundleHashError where it differs."""
    if not path.is_file():
        raise BundleFileError(
            f"{path}: {MANIFEST} lists this file, but it is missing. Copy the bundle again."
        )
    size = path.stat().st_size
    if size != expected.size:
        raise BundleFileError(f"{path}: expected {expected.size} bytes, found {size}. Copy the bundle again.")
    found = file_record(path)
    if found.sha256 != expected.sha256:
        raise BundleHashError(
            f"{path}: expected SHA-256 {expected.sha256}, found {found.sha256}: "
            "the file was changed. Copy the bundle again."
        )


_LOCATION = b"location"
_WEIGHTS = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])", re.DOTALL)
"""StringStringEntryProto of a tensor's external data: the key, and the length of the file's name."""


def check_weights(folder: Path, graph: str, files: Collection[str]) -> None:
    """Raises BundleFileError where a graph's weights lie in a file that is not among the bundle's `files`.

    The key of such a file stands in the graph's bytes, however they are encoded: one that is not followed by
    a name in the form that converters write is refused too.
    """
    data = (folder / graph).read_bytes()
    names = {data[at.end() : at.end() + at[1][0]] for at in _WEIGHTS.finditer(data)}
    found = {name.decode("utf-8", "replace") for name in names}
    beside = graph[: graph.rfind("/") + 1]
    allowed = {name.removeprefix(beside) for name in files if name.startswith(beside)}
    if data.count(_LOCATION) != len(_WEIGHTS.findall(data)):
        found.add("a name that cannot be read")
    if odd := sorted(found - allowed):
        raise BundleFileError(
            f"{folder / graph}: expected weights in files that {MANIFEST} lists, found {odd[0]!r:.80}. "
            "Convert the model again, or fetch the bundle from whom you trust."
        )


def _read_json(path: Path, limit: int | None = None) -> Any:
    try:
        if limit is not None and path.stat().st_size > limit:
            raise BundleSchemaError(f"{path}: expected at most {limit} bytes, found {path.stat().st_size}")
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleFileError(f"{path}: this file is missing. Copy the bundle again.") from error
    except OSError as error:
        raise BundleFileError(f"{path}: expected a readable file, found: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BundleSchemaError(f"{path}: expected JSON, found: {error}") from error
