"""Packages whose exports are imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from common.lazy import lazy_exports

SOURCE = """
if TYPE_CHECKING:
    from fractions import Fraction as Fraction
    from decimal import Decimal as Decimal
"""
PACKAGES = ("payload", "edge_runtime", "links", "convert", "cloud_anchor")


def test_the_imports_for_type_checkers_are_the_exports(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text(SOURCE)
    names, attribute = lazy_exports(__name__, str(file))
    assert names == ["Decimal", "Fraction"]
    assert attribute("Fraction")(1, 2) * 2 == 1
    assert hasattr(sys.modules[__name__], "Fraction")  # kept: found without the function from now on
    with pytest.raises(AttributeError):
        attribute("Float")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package: str) -> None:
    module = import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
