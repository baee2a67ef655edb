"""Bundle lookup: the one named, an installed one that fits, the shipped one, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.errors import BundleContractError, BundleMissingError


class Place:
    """A user's device with bundles of two contracts: `small` (300 tokens) and `large` (310)."""

    def __init__(self, root: Path, make: Callable[..., Path]) -> None:
        self.make, self.root = make, root
        self.environment = {"XDG_DATA_HOME": str(root / "data")}
        self.installed = root / "data" / "inverse-speculation" / "bundles"
        self.shipped = root / "shipped"

    def put(self, folder: Path, vocab_size: int = 300) -> Path:
        return self.make(folder, vocab_size=vocab_size)

    def find(self, tag: str, model: str | None = None, **environment: str) -> list[Path]:
        return find_bundles(tag, model, {**self.environment, **environment}, self.shipped)


@pytest.fixture
def place(tmp_path: Path, plain_bundle: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return Place(tmp_path, plain_bundle)


def tag_of(folder: Path) -> str:
    return read_manifest(folder).contract.identity[:2]


def test_a_named_bundle_is_taken_whatever_its_contract(place: Place) -> None:
    other = place.put(place.root / "other")
    named = place.put(place.installed / "named")
    assert place.find("zz", str(other)) == [other]
    assert place.find("zz", "named") == [named]
    assert place.find("zz", EDGE_MODEL=str(other)) == [other]
    assert place.find("zz", str(other), EDGE_MODEL="named") == [other]
    with pytest.raises(BundleMissingError):
        place.find("zz", "nowhere")


def test_installed_before_local_before_shipped(place: Place) -> None:
    shipped = place.put(place.shipped)
    tag = tag_of(shipped)
    assert place.find(tag) == [shipped]
    local = place.put(Path("bundles") / "local")
    assert place.find(tag) == [local]
    installed = place.put(place.installed / "one")
    assert place.find(tag) == [installed]
    elsewhere = place.put(place.root / "elsewhere" / "one")
    assert place.find(tag, EDGE_BUNDLES=str(place.root / "elsewhere")) == [elsewhere]


def test_only_bundles_that_fit_one_of_each_contract(place: Place) -> None:
    large, small = place.put(place.installed / "large", 310), place.put(place.installed / "small")
    assert tag_of(small) != tag_of(large)
    assert place.find(tag_of(small)) == [small]
    place.put(place.installed / "small-again")
    assert place.find("") == [large, small]


def test_none_fits(place: Place) -> None:
    with pytest.raises(BundleContractError):
        place.find("ab")
    small = place.put(place.installed / "small")
    broken = place.put(place.installed / "broken")
    (broken / "bundle.json").write_text("{}")
    with pytest.raises(BundleContractError) as caught:
        place.find("zz")
    for named in ("zz", str(small), str(read_manifest(small).contract), str(broken)):
        assert named in str(caught.value)
