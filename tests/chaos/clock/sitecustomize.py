"""A wall clock that jumps, with this folder in PYTHONPATH: by the seconds in the file CHAOS_CLOCK."""

from __future__ import annotations

import os
import time

_time, _file = time.time, os.environ["CHAOS_CLOCK"]


def jumping() -> float:
    try:
        with open(_file, encoding="ascii") as file:
            return _time() + float(file.read() or 0)
    except OSError:
        return _time()


time.time = jumping
