"""Bundles of each schema, made before their successors: they open and give the tokens that they gave.

`earlier/` holds random weights of one layer, 32 wide: schema 1 with int4 in blocks of 32 and a manifest that
does not state it, schema 2 (a block drafter) and schema 3 (a growing cache, by optimum). Their files and
`expected.json` are never made again. The shipped bundle's tokens are recorded there too. `forced` are the
places of an answer that anchors fix, among them those with two nearly equal logits: arithmetic in another
order may choose the other.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import MANIFEST, Bundle, read_manifest
from edge_runtime.decode.block_drafter import BlockDrafter
from edge_runtime.decode.forced import fill
from edge_runtime.engine.ort_engine import OrtEngine
from payload import AnchorSet
from tests.shipped import TINY_BUNDLE

EARLIER = Path(__file__).with_name("earlier")
EXPECTED = json.loads((EARLIER / "expected.json").read_text(encoding="utf-8"))
PLACES = {"shipped": TINY_BUNDLE, **{name: EARLIER / name for name in ("schema1", "schema2", "schema3")}}
CASES = [(name, variant) for name in ("schema1", "schema3", "shipped") for variant in EXPECTED[name]]


@pytest.mark.parametrize("name", ["schema1", "schema2", "schema3"])
def test_it_opens_whole_and_of_its_schema(name: str) -> None:
    data = json.loads((EARLIER / name / MANIFEST).read_text(encoding="utf-8"))
    assert data["schema"] == int(name[-1])
    manifest = read_manifest(EARLIER / name)
    assert not any(variant.quantisation for variant in manifest.variants.values())
    assert manifest.to_json() == data
    for variant in manifest.variants:
        Bundle.open(EARLIER / name, variant).verify_contract()


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_it_gives_the_same_tokens(name: str, variant: str) -> None:
    if variant != "fp32" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("recorded on x86: other processors round activations in other ways")
    if name == "shipped":
        found = hashlib.sha256((TINY_BUNDLE / MANIFEST).read_bytes()).hexdigest()
        if found != EXPECTED["shipped manifest"]:
            pytest.skip("another pair is shipped than the one whose tokens are recorded")
    bundle = Bundle.open(PLACES[name], variant)
    prompt = bundle.form.ids("What is the capital?")
    expected = EXPECTED[name][variant]
    forced = {place: expected["tokens"][place] for place in expected["forced"]}
    size = len(expected["tokens"])
    assert len(forced) < size / 2
    anchors = AnchorSet.of(forced, size, bundle.contract, size)
    tokens = [token.id for token in fill(OrtEngine.open(bundle, threads=1), prompt, anchors)]
    assert tokens == expected["tokens"]


def test_a_block_drafter_gives_the_same_drafts() -> None:
    contract = Bundle.open(EARLIER / "schema1").contract
    drafter = BlockDrafter.open(EARLIER / "schema2", contract, 320, threads=1)
    text = [5, 9, 200, 31, 7]
    for expected in EXPECTED["schema2"]["fp32"]:
        assert list(drafter.draft(text, 6)) == expected
        text += [expected[0], len(text)]
