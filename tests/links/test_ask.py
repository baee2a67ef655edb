"""The bundle that `links.ask` and the gateway take."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge_runtime.bundle.bundle import BUNDLES
from edge_runtime.bundle.lookup import SHIPPED, gateway_bundle
from edge_runtime.errors import UsageError


def test_the_shipped_bundle_is_the_default_unless_others_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGE_MODEL", raising=False)
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert gateway_bundle(None) == SHIPPED
    shutil.copytree(BUNDLES / "tiny-qwen", tmp_path / "mine")
    with pytest.raises(UsageError):
        gateway_bundle(None)
    assert gateway_bundle("mine") == Path("mine")  # a folder here
