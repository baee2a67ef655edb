"""How many threads a model should use on this device: one for each of its fast cores.

Knows what the operating system tells about cores. On ARM boards and phones the slow cores of a big.LITTLE
processor hold the fast ones up, and two threads on one x86 core share what that core can multiply.
"""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


def performance_cores(cpus: Path = _CPUS) -> int:
    """Number of fast physical cores this process may run on; where that is not told, of logical ones."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not allowed:
        return os.cpu_count() or 1
    capacity = {cpu: _number(cpus / f"cpu{cpu}" / "cpu_capacity") or 0 for cpu in allowed}
    # Cores within a fifth of the fastest count as fast: three-tier phones have a prime core and big ones.
    fast = [cpu for cpu in allowed if capacity[cpu] * 5 >= max(capacity.values()) * 4]
    siblings = {_text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in fast}
    return len(siblings)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None
