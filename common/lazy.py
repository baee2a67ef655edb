"""Package exports that are imported on first use, so that `--help` and light modules load no heavy library.

Responsible for the module-level `__getattr__` of such a package (PEP 562). Not responsible for the choice of
exports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: imports a name from its module, relative to the package, and keeps it.

    modules: module by exported name. Raises AttributeError for any other name.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
