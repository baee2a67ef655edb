"""The names that `cloud_anchor` exports, imported on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cloud_anchor


def test_every_exported_name_exists() -> None:
    for name in cloud_anchor.__all__:
        assert getattr(cloud_anchor, name).__name__ == name
    assert sorted(cloud_anchor.__all__) == cloud_anchor.__all__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Maker'"):
        cloud_anchor.Maker  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, cloud_anchor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
