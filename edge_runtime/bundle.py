"""The model bundle: a folder that holds everything the device needs of a model.

    bundle.json            shapes, variants, contract, SHA-256 of every other file
    tokenizer.json         byte-level BPE
    chat_template.json     the template in compiled form; its Jinja original lies beside it
    int8/model.onnx ...    one folder a variant: a graph and its weights

Knows the schema, how to verify the files, and how a bundle's contract is computed. Does not know how a bundle
is chosen (see `lookup`), made (see `convert`) or run (see `ort_engine`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from edge_runtime.chat import ChatTemplate
from edge_runtime.errors import (
    BundleContractError,
    BundleFileError,
    BundleHashError,
    BundleMissingError,
    BundleSchemaError,
    BundleVariantError,
)
from edge_runtime.tokenizer import Tokenizer
from payload import Contract, PayloadError

SCHEMA = 1
MANIFEST = "bundle.json"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.json"
MAX_MANIFEST_BYTES = 4 << 20
"""A manifest is a few kilobytes; a larger file is something else."""


@dataclass(frozen=True)
class FileRecord:
    """What a manifest says of a file: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self.sha256}


@dataclass(frozen=True)
class ModelShape:
    """Where a model comes from and the sizes of its tensors. Field names are those of its configuration.

    vocab_size is the number of rows of its logits, which may exceed the number of tokens.
    """

    id: str
    revision: str
    architecture: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelShape:
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            kind = str if field.name in ("id", "revision", "architecture") else int
            value = _get(data, field.name, kind, "model")
            if kind is int and value <= 0:
                raise BundleSchemaError(f"{MANIFEST}: expected model.{field.name} above 0, found {value}")
            values[field.name] = value
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Variant:
    """One precision of the model.

    graph: the ONNX file, relative to the bundle. files: records of the graph and its weights.
    verification: how it was checked against the original model; not read on the device.
    """

    graph: str
    files: Mapping[str, FileRecord]
    verification: Mapping[str, Any]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str) -> Variant:
        where = f"variants.{name}"
        graph = _relative(_get(data, "graph", str, where))
        files = _records(_get(data, "files", dict, where), f"{where}.files")
        if graph not in files:
            raise BundleSchemaError(
                f"{MANIFEST}: expected {graph!r} among {where}.files, found {sorted(files)}"
            )
        verification = data.get("verification", {})
        return cls(graph, files, verification if isinstance(verification, dict) else {})

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "files": {name: record.to_json() for name, record in self.files.items()},
            "verification": dict(self.verification),
        }


@dataclass(frozen=True)
class Manifest:
    """The content of `bundle.json`.

    context: most tokens, prompt and answer together, that the graphs' position tables serve.
    """

    model: ModelShape
    context: int
    contract: Contract
    default_variant: str
    variants: Mapping[str, Variant]
    files: Mapping[str, FileRecord]
    tools: Mapping[str, str]

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """Reads the parsed manifest; raises BundleSchemaError naming the field that is wrong."""
        if not isinstance(data, dict):
            raise BundleSchemaError(f"{MANIFEST}: expected an object, found a {type(data).__name__}")
        schema = data.get("schema")
        if schema != SCHEMA:
            raise BundleSchemaError(
                f"{MANIFEST}: expected schema {SCHEMA}, found {schema!r}. "
                "Convert the model again, or update this package."
            )
        try:
            contract = Contract.from_json(_get(data, "contract", dict))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BundleSchemaError(f"{MANIFEST}: the contract is incomplete: {error!r}") from error
        variants = {
            name: Variant.from_json(_get(data["variants"], name, dict, "variants"), name)
            for name in _get(data, "variants", dict)
        }
        default = _get(data, "default_variant", str)
        if default not in variants:
            raise BundleSchemaError(
                f"{MANIFEST}: expected default_variant among {sorted(variants)}, found {default!r}"
            )
        context = _get(data, "context", int)
        if context <= 0:
            raise BundleSchemaError(f"{MANIFEST}: expected a context above 0, found {context}")
        files = _records(_get(data, "files", dict), "files")
        for name in (TOKENIZER, TEMPLATE):
            if name not in files:
                raise BundleSchemaError(f"{MANIFEST}: expected {name!r} among files, found {sorted(files)}")
        return cls(
            model=ModelShape.from_json(_get(data, "model", dict)),
            context=context,
            contract=contract,
            default_variant=default,
            variants=variants,
            files=files,
            tools={str(k): str(v) for k, v in _get(data, "tools", dict).items()},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": self.model.to_json(),
            "context": self.context,
            "contract": self.contract.to_json(),
            "default_variant": self.default_variant,
            "variants": {name: variant.to_json() for name, variant in self.variants.items()},
            "files": {name: record.to_json() for name, record in self.files.items()},
            "tools": dict(self.tools),
        }


@dataclass(frozen=True)
class Bundle:
    """An opened bundle with one of its variants chosen."""

    path: Path
    manifest: Manifest
    variant_name: str

    @classmethod
    def open(cls, path: str | Path, variant: str | None = None, *, verify: bool = True) -> Bundle:
        """Opens a bundle folder, by default with its default variant.

        With `verify`, every file the variant needs must have its size and SHA-256. Raises BundleMissingError,
        BundleSchemaError, BundleVariantError, BundleFileError or BundleHashError.
        """
        folder = Path(path)
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

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(self.path / TOKENIZER)

    @cached_property
    def template(self) -> ChatTemplate:
        return ChatTemplate.from_json(_read_json(self.path / TEMPLATE))

    def verify(self) -> None:
        """Checks size and SHA-256 of the common files and of the chosen variant's."""
        for name, record in {**self.manifest.files, **self.variant.files}.items():
            verify_file(self.path / name, record)

    def verify_contract(self) -> None:
        """Checks that the manifest's contract is that of its tokenizer and template.

        Once made and hashed they cannot drift apart, so this is for whoever makes a bundle: it
        takes 0.3 s for a full vocabulary.
        """
        found = contract_of(self.path)
        if found != self.contract:
            raise BundleContractError(
                f"{self.path}: {MANIFEST} states contract {self.contract}, "
                f"but its tokenizer and template have {found}. Convert the model again."
            )


def read_manifest(folder: Path) -> Manifest:
    """Reads a folder's `bundle.json` and nothing else: enough to tell which contract it fits."""
    path = folder / MANIFEST
    if not path.is_file():
        found = "no such folder" if not folder.is_dir() else f"a folder without {MANIFEST}"
        raise BundleMissingError(f"{folder}: expected a model bundle, found {found}")
    return Manifest.from_json(_read_json(path, MAX_MANIFEST_BYTES))


def contract_of(folder: Path) -> Contract:
    """The contract of the tokenizer and the compiled chat template in a folder."""
    tokenizer = _read_json(folder / TOKENIZER)
    template = ChatTemplate.from_json(_read_json(folder / TEMPLATE))
    try:
        return Contract.of(tokenizer, template.to_json())
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


def _get(data: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    """A field of the wanted type, or a BundleSchemaError that names it."""
    value = data.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        label = f"{where}.{name}" if where else name
        raise BundleSchemaError(f"{MANIFEST}: expected {label} of type {kind.__name__}, found {value!r:.80}")
    return value


def _records(data: Mapping[str, Any], where: str) -> dict[str, FileRecord]:
    records = {}
    for name in data:
        record = _get(data, name, dict, where)
        size = _get(record, "size", int, f"{where}.{name}")
        digest = _get(record, "sha256", str, f"{where}.{name}")
        records[_relative(name)] = FileRecord(size, digest)
    return records


def _relative(name: str) -> str:
    """A path that stays inside the bundle, so that a manifest cannot point at the device's other files."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise BundleSchemaError(f"{MANIFEST}: expected a path inside the bundle, found {name!r}")
    return name
