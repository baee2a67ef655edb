"""The vectors that every implementation of the format is tested on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from payload import AnchorSet, Base, Contract, Extras, PayloadError, Shared, decode, encode, errors, peek
from payload.codecs.prior import model_hash
from tests.vectors import make_vectors
from tests.vectors.toy_vocabulary import ToyTokens

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
DOCUMENT = json.loads((FOLDER / "payload_vectors.json").read_text())
VECTORS = {row["name"]: row for row in DOCUMENT["vectors"]}
CONTRACTS = {name: Contract.from_json(each) for name, each in DOCUMENT["contracts"].items()}
TOKENS = ToyTokens([bytes.fromhex(piece) for piece in DOCUMENT["toy_pieces"]])


def anchors_of(row: dict[str, Any]) -> AnchorSet:
    held = row["anchors"]
    positions, ids = map(tuple, (held["positions"], held["ids"]))
    return AnchorSet(positions, ids, held["canvas"], CONTRACTS[row["contract"]], held["length"])


def extras_of(row: dict[str, Any]) -> Extras:
    held = row["anchors"]
    return Extras(held["prompt"], held["step"], held["total_steps"], tuple(held["confidence"]))


def base_of(row: dict[str, Any]) -> Base | None:
    if row["base"] is None:
        return None
    on = VECTORS[row["base"]]
    return Base(bytes.fromhex(on["payload"]), anchors_of(on))


@pytest.mark.parametrize("name", [name for name, row in VECTORS.items() if row["error"] is None])
def test_a_good_vector(name: str) -> None:
    row = VECTORS[name]
    data = bytes.fromhex(row["payload"])
    shared = Shared(CONTRACTS[row["contract"]], row["prompt_ids"], TOKENS, base_of(row))
    assert decode(data, shared) == anchors_of(row)
    assert peek(data).extras == extras_of(row)
    if row["encoder_exact"]:
        assert encode(anchors_of(row), shared, extras=extras_of(row)) == data


@pytest.mark.parametrize("name", [name for name, row in VECTORS.items() if row["error"] is not None])
def test_a_bad_vector(name: str) -> None:
    row = VECTORS[name]
    shared = Shared(CONTRACTS[row["contract"]], row["prompt_ids"], TOKENS)
    with pytest.raises(PayloadError) as caught:
        decode(bytes.fromhex(row["payload"]), shared)
    assert type(caught.value) is getattr(errors, row["error"])


def test_the_vectors_belong_to_this_model_file_and_format() -> None:
    assert DOCUMENT["model_sha256"] == model_hash().hex()
    assert len(VECTORS) == len(DOCUMENT["vectors"]) >= 60
    for name, each in DOCUMENT["contracts"].items():
        assert CONTRACTS[name].identity == each["identity"]


def test_the_script_writes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what zlib writes, which may differ with its version."""
    out = tmp_path / "again.json"
    monkeypatch.setattr(make_vectors, "OUTPUT", out)
    make_vectors.main()
    for row in json.loads(out.read_text())["vectors"]:
        if row["encoder_exact"] or row["codec"] is not None:
            before = VECTORS[row["name"]]
            assert row["anchors"] == before["anchors"], row["name"]
            assert not row["encoder_exact"] or row["payload"] == before["payload"], row["name"]
