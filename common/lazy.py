"""Package exports that are imported on first use, so that `--help` and light modules load no heavy library.

    if TYPE_CHECKING:
        from payload.anchors import AnchorSet as AnchorSet
    else:
        __all__, __getattr__ = lazy_exports(__name__, __file__)

The import statements are the only list: type checkers read them as they stand, and this module reads them at
run time. Responsible for `__all__` and the module-level `__getattr__` of such a package (PEP 562).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package, from its imports under `if TYPE_CHECKING`.

    `__getattr__` imports a name from its module and keeps it; any other name is an AttributeError.
    """
    modules = {
        alias.name: node.module
        for branch in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(modules), __getattr__
