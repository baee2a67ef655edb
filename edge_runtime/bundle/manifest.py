"""Manifest: the content of `bundle.json`.

Responsible for the schema, and for errors that name the field that breaks it. Not responsible for the
bundle's other files (see `bundle`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from edge_runtime.errors import BundleSchemaError
from payload import Contract

SCHEMA = 1
MANIFEST = "bundle.json"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.json"


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256 in hex of a file."""

    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self.sha256}


MOST = {
    "hidden_size": 1 << 17,
    "num_hidden_layers": 1 << 10,
    "num_attention_heads": 1 << 10,
    "num_key_value_heads": 1 << 10,
    "head_dim": 1 << 13,
    "intermediate_size": 1 << 20,
    "vocab_size": 1 << 22,
}
"""Largest sizes that are taken, several times those of any published model: files of strangers state them."""


def size_problem(sizes: Mapping[str, Any]) -> str | None:
    """What is wrong with the first of these sizes that is out of bounds, as "expected ..., found ..."."""
    for name, most in MOST.items():
        if name in sizes and not (type(sizes[name]) is int and 0 < sizes[name] <= most):
            return f"expected {name} from 1 to {most}, found {sizes[name]!r:.40}"
    return None


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model's tensors. Field names are those of its configuration.

    vocab_size is the number of rows of its logits, which may exceed the number of tokens.
    """

    architecture: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class ModelShape(Sizes):
    """A model's sizes, and the repository and revision that it comes from."""

    id: str
    revision: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelShape:
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            kind = str if field.name in ("id", "revision", "architecture") else int
            value = _get(data, field.name, kind, "model")
            values[field.name] = value
        if problem := size_problem(values):
            raise BundleSchemaError(f"{MANIFEST}: model: {problem}")
        return cls(**values)


PORTABLE_GUARD = 0.02
"""Margin in logits from which on processors agree what a portable graph prefers: they differ by 1e-4."""

GUARDS = {"fp32": PORTABLE_GUARD, "fp16": PORTABLE_GUARD, "int8": 0.5, "int4": 4.0}
"""The same of each variant's own graph, whose activations may be rounded. On 200 held-out prompts of the
shipped pair 0.5 made int8 decode the intended text on all; int4 did on 96% with 2, and on 99% with 4 for 1.4
bytes more."""


@dataclass(frozen=True)
class Variant:
    """One precision of the model.

    graph:        the ONNX file, relative to the bundle.
    portable:     the ONNX file whose logits agree across processors, over the same weights: the graph itself
                  where its weights are floating point; None in a bundle of an earlier version.
    files:        records of the graph and its weights.
    verification: results of the checks against the original model.
    """

    graph: str
    files: Mapping[str, FileRecord]
    verification: Mapping[str, Any]
    portable: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(record.size for record in self.files.values())

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str) -> Variant:
        where = f"variants.{name}"
        graph = _relative(_get(data, "graph", str, where))
        files = _records(_get(data, "files", dict, where), f"{where}.files")
        if not graph.endswith(".onnx"):
            raise _expected(f"{where}.graph of a name that ends in .onnx", repr(graph))
        portable = _get(data, "portable", str, where) if "portable" in data else None
        for path in (graph, portable):
            if path is not None and path not in files:
                raise _expected(f"{path!r} among {where}.files", sorted(files))
        verification = data.get("verification")
        return cls(graph, files, verification if isinstance(verification, dict) else {}, portable)

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "files": {name: record.to_json() for name, record in self.files.items()},
            "verification": dict(self.verification),
            **({"portable": self.portable} if self.portable else {}),
        }


LIMITS = ("not_sure_from", "ask_from")
"""Limits of doubt, which a manifest need not have."""


@dataclass(frozen=True)
class Manifest:
    """The content of `bundle.json`.

    context: most tokens, prompt and answer together, that the graphs' position tables serve.
    not_sure_from: the doubt from which on an answer is better not shown, as measured beside the cloud's model
             that the bundle is for; None where it was not measured.
    ask_from: the device's own doubt above which it asks the cloud, as measured.
    knows: in words, what may be asked of the pair that the bundle is of; empty where it is not said.
    """

    model: ModelShape
    context: int
    contract: Contract
    default_variant: str
    variants: Mapping[str, Variant]
    files: Mapping[str, FileRecord]
    tools: Mapping[str, str]
    not_sure_from: float | None = None
    ask_from: float | None = None
    knows: str = ""

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """Reads the parsed manifest; raises BundleSchemaError naming the field that is wrong."""
        if not isinstance(data, dict):
            raise _expected("an object", f"a {type(data).__name__}")
        schema = data.get("schema")
        if schema != SCHEMA:
            remedy = "Convert the model again, or update this package."
            raise _expected(f"schema {SCHEMA}", f"{schema!r}. {remedy}")
        try:
            contract = Contract.from_json(_get(data, "contract", dict))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise BundleSchemaError(f"{MANIFEST}: the contract is incomplete: {error!r}") from error
        variants = {
            name: Variant.from_json(_get(data["variants"], name, dict, "variants"), name)
            for name in _get(data, "variants", dict)
        }
        default = _get(data, "default_variant", str)
        if default not in variants:
            raise _expected(f"default_variant among {sorted(variants)}", repr(default))
        context = _get(data, "context", int)
        if context <= 0:
            raise _expected("a context above 0", context)
        files = _records(_get(data, "files", dict), "files")
        for name in (TOKENIZER, TEMPLATE):
            if name not in files:
                raise _expected(f"{name!r} among files", sorted(files))
        limits = {name: data.get(name) for name in LIMITS}
        for name, limit in limits.items():
            if limit is not None and not (type(limit) in (int, float) and 0 <= limit <= 1):
                raise _expected(f"{name} between 0 and 1", f"{limit!r:.80}")
        return cls(
            model=ModelShape.from_json(_get(data, "model", dict)),
            context=context,
            contract=contract,
            default_variant=default,
            variants=variants,
            files=files,
            tools={str(k): str(v) for k, v in _get(data, "tools", dict).items()},
            **limits,
            knows=_get({"knows": "", **data}, "knows", str),
        )

    @property
    def records(self) -> dict[str, FileRecord]:
        """Of every file but the manifest itself."""
        of_variants = (variant.files for variant in self.variants.values())
        return {name: record for part in (self.files, *of_variants) for name, record in part.items()}

    @property
    def guard(self) -> float:
        """The guard of a payload that is for any variant: that of the least exact one."""
        return max(GUARDS.get(name, max(GUARDS.values())) for name in self.variants)

    def fingerprint(self, variant: str) -> bytes:
        """SHA-256 of everything that decides a variant's logits: the contract and its files' hashes.

        A payload that is bound to its writer's model states the first byte of that model's fingerprint.
        """
        files = {name: record.sha256 for name, record in self.variants[variant].files.items()}
        text = json.dumps([self.contract.identity, files, "unrounded"], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def variant_with_fingerprint(self, tag: str) -> str | None:
        """The variant whose fingerprint begins with `tag` (hex digits), the default one first."""
        names = sorted(self.variants, key=lambda name: name != self.default_variant)
        return next((name for name in names if self.fingerprint(name).hex().startswith(tag)), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": dataclasses.asdict(self.model),
            "context": self.context,
            "contract": self.contract.to_json(),
            "default_variant": self.default_variant,
            "variants": {name: variant.to_json() for name, variant in self.variants.items()},
            "files": {name: record.to_json() for name, record in self.files.items()},
            "tools": dict(self.tools),
            **{name: limit for name in LIMITS if (limit := getattr(self, name)) is not None},
            **({"knows": self.knows} if self.knows else {}),
        }


def _expected(what: str, found: object) -> BundleSchemaError:
    return BundleSchemaError(f"{MANIFEST}: expected {what}, found {found}")


def _get(data: Mapping[str, Any], name: str, kind: type, where: str = "") -> Any:
    """A field of the wanted type, or a BundleSchemaError that names it."""
    value = data.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        label = f"{where}.{name}" if where else name
        raise _expected(f"{label} of type {kind.__name__}", f"{value!r:.80}")
    return value


def _records(data: Mapping[str, Any], where: str) -> dict[str, FileRecord]:
    records = {}
    for name in data:
        record = _get(data, name, dict, where)
        size = _get(record, "size", int, f"{where}.{name}")
        digest = _get(record, "sha256", str, f"{where}.{name}")
        if size < 0:
            raise _expected(f"{where}.{name}.size from 0", size)
        records[_relative(name)] = FileRecord(size, digest)
    return records


def _relative(name: str) -> str:
    """Checks that a path stays inside the bundle: a manifest must not name other files of the device, nor
    itself.
    """
    path = PurePosixPath(name)
    odd = not name.isprintable() or "\\" in name or ":" in name or str(path) != name
    if odd or path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (MANIFEST,)):
        raise _expected("a path inside the bundle", repr(name))
    return name
