"""The shipped bundle: complete, of its own contract, found where no other is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edge_runtime import doctor
from edge_runtime.bench import __main__ as bench
from edge_runtime.bundle.bundle import BUNDLES, Bundle, read_manifest
from edge_runtime.bundle.lookup import SHIPPED, find_bundles, gateway_bundle
from edge_runtime.decode.forced import FillStats, Source, fill
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import UsageError
from payload import AnchorSet

pytestmark = pytest.mark.skipif(
    not (SHIPPED / "bundle.json").is_file(), reason="the shipped bundle has not been made"
)


def test_every_variant_is_whole_and_fits_its_contract() -> None:
    for variant in read_manifest(SHIPPED).variants:
        Bundle.open(SHIPPED, variant).verify_contract()


def test_it_is_the_one_where_nothing_is_installed_and_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path))
    monkeypatch.delenv("EDGE_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_bundles(read_manifest(SHIPPED).contract.identity[:2]) == [SHIPPED]
    few = ["--variant", "int8", "--repeat", "1", "--length", "8"]
    for command, options in ((doctor.main, []), (bench.main, few)):
        assert command([*options, "--threads", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["bundle"] in (str(SHIPPED), SHIPPED.name)
    assert gateway_bundle(None) == SHIPPED
    shutil.copytree(BUNDLES / "tiny-qwen", tmp_path / "mine")
    with pytest.raises(UsageError):
        gateway_bundle(None)
    assert gateway_bundle("mine") == Path("mine")  # a folder here


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
