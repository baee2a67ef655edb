"""A folder for the files that a target reads; TMPDIR says where."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp


@cache
def folder() -> Path:
    """The folder of this process, empty at first and deleted at its end."""
    made = Path(mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
