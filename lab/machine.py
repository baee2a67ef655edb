"""The machine of a measurement, as text.

Responsible for its name. Not responsible for reading the system (see `edge_runtime.system`).
"""

from __future__ import annotations

import os

from edge_runtime.system import Processor


def machine() -> str:
    """The processor's name and the number of cores that may be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{Processor.detect().name}, {cores} cores"
