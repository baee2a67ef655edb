"""The shipped bundle: complete, of its own contract, found where no other is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import Bundle, read_manifest
from edge_runtime.bundle.lookup import SHIPPED, find_bundles
from edge_runtime.decode.forced import FillStats, Source, fill
from edge_runtime.engine.ort_engine import OrtEngine
from payload import AnchorSet

pytestmark = pytest.mark.skipif(
    not (SHIPPED / "bundle.json").is_file(), reason="the shipped bundle has not been made"
)


def test_every_variant_is_whole_and_fits_its_contract() -> None:
    for variant in read_manifest(SHIPPED).variants:
        Bundle.open(SHIPPED, variant).verify_contract()


def test_it_is_found_where_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tag = read_manifest(SHIPPED).contract.identity[:2]
    assert find_bundles(tag, None, {"XDG_DATA_HOME": str(tmp_path)}) == [SHIPPED]


def test_its_variants_write_text_around_anchors() -> None:
    for variant in read_manifest(SHIPPED).variants:
        bundle = Bundle.open(SHIPPED, variant)
        prompt = bundle.form.ids("What is the capital?")
        anchors = AnchorSet((0, 1, 10), (40, 41, 42), 64, bundle.contract, 20)
        stats = FillStats()
        tokens = list(fill(OrtEngine.open(bundle, threads=1), prompt, anchors, stats=stats))
        assert [t.position for t in tokens if t.source is Source.ANCHOR] == [0, 1, 10]
        assert len(tokens) == 20
        assert stats.passes == 17
        assert not bundle.contract.eos_ids & {t.id for t in tokens}
