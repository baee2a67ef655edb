"""The build backend of the device's distribution: hatchling, told when an installation is editable.

Responsible for that word alone, by which the extras are written (see `hooks`). Hatchling's hooks for metadata
alone are left out, so that every front end builds and the word is always given.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling import build
from hatchling.build import (
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


def build_editable(*arguments: Any, **options: Any) -> str:
    os.environ["INVERSESPEC_EDITABLE"] = "1"
    return build.build_editable(*arguments, **options)
