"""`bundle.json`, with the contract in it: what a bundle from a stranger states of itself."""

from __future__ import annotations

import json

from edge_runtime.bundle.bundle import BUNDLES, MANIFEST, read_manifest
from edge_runtime.bundle.manifest import Manifest
from edge_runtime.errors import EdgeError
from payload import Contract
from tests.fuzz.json_mutator import mutated as mutated
from tests.fuzz.scratch import folder
from tests.vectors.toy_vocabulary import contract

ALLOWED = (EdgeError,)
INSTRUMENTED = ("edge_runtime.bundle", "payload.contract")
MAX_BYTES = 1 << 14


def run(data: bytes) -> None:
    (folder() / MANIFEST).write_bytes(data)
    manifest = read_manifest(folder())
    assert Manifest.from_json(manifest.to_json()) == manifest
    _ = (manifest.contract.eos_ids, manifest.contract.reserved, str(manifest.contract))
    for name in manifest.variants:
        manifest.fingerprint(name)


def seeds() -> list[bytes]:
    """The shipped manifests, and one of a contract with ends of its own."""
    shipped = [
        json.loads((path / MANIFEST).read_bytes()) for path in sorted(BUNDLES.iterdir()) if path.is_dir()
    ]
    small = {**shipped[0], "variants": dict(list(shipped[0]["variants"].items())[:1])}
    small["default_variant"] = next(iter(small["variants"]))
    ends = Contract(9, "a" * 64, {"<end>": 3}, "0" * 64, ("<end>",))
    others = [{**small, "contract": each.to_json()} for each in (contract(), ends)]
    return [json.dumps(each).encode() for each in (*shipped, small, *others)]
