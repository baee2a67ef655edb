"""The device as the operating system describes it: cores, instructions, memory.

Responsible for everything that is read from /sys, /proc and the resource limits. Not responsible for what
follows from it (see `doctor`, `prepack`, `console`).

Every function has an answer where the system does not tell: a fallback, zero, or None, as documented.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_GROUPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")

_FEATURES: Mapping[str, tuple[str, ...]] = {
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "dotprod": ("asimddp",),
    "i8mm": ("i8mm",),
    "fp16": ("asimdhp", "avx512_fp16"),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
}
"""Instruction sets that matter to the kernels, and their flags in /proc/cpuinfo."""

_SIGNATURE_FIELDS = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")


@dataclass(frozen=True)
class Processor:
    """The processor that runs the model.

    features: those of VNNI, dotprod, i8mm, fp16 and bf16 that it has; None where the system does not tell.
    """

    machine: str
    name: str
    features: tuple[str, ...] | None

    @classmethod
    def detect(cls, cpuinfo: Path = _CPUINFO) -> Processor:
        fields: dict[str, str] = {}
        for line in _lines(cpuinfo):
            key, _, value = line.partition(":")
            fields.setdefault(key.strip().lower(), value.strip())
        flags = fields.get("flags") or fields.get("features")
        found = None if flags is None else set(flags.split())
        return cls(
            platform.machine(),
            fields.get("model name") or fields.get("hardware") or platform.processor() or "unknown",
            None if found is None else tuple(n for n, names in _FEATURES.items() if found & set(names)),
        )


def processor_signature() -> str:
    """Text that differs between processors with different instructions: the key of files made for one."""
    cpuinfo = _lines(_CPUINFO)
    lines = {line for line in cpuinfo if line.partition(":")[0].strip() in _SIGNATURE_FIELDS}
    if not cpuinfo:
        lines.add(platform.processor())
    return "\n".join([platform.system(), platform.machine(), *sorted(lines)])


def performance_cores(cpus: Path = _CPUS) -> int:
    """Number of fast physical cores this process may run on: the number of threads for a model.

    On ARM boards and phones the slow cores of a big.LITTLE processor hold the fast ones up, and two
    threads on one x86 core share its multipliers. Without that information: the number of logical cores.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not allowed:
        return os.cpu_count() or 1
    capacity = {cpu: _number(cpus / f"cpu{cpu}" / "cpu_capacity") or 0 for cpu in allowed}
    # Cores within a fifth of the fastest count as fast: three-tier phones have a prime core and big ones.
    fast = [cpu for cpu in allowed if capacity[cpu] * 5 >= max(capacity.values()) * 4]
    siblings = {_text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in fast}
    return len(siblings)


def available_memory(
    meminfo: Path = _MEMINFO, groups: Path = _GROUPS, cgroups: Path = _CGROUPS
) -> int | None:
    """Bytes of memory available without swapping; None where the system does not tell.

    The least of what the machine has and of what the control groups of this process, as set by a container or
    a service manager, leave it. Pages of files that can be dropped count as available in both.
    """
    found = [_sizes(meminfo).get("MemAvailable"), *_left_in_groups(groups, cgroups)]
    return min((size for size in found if size is not None), default=None)


def _left_in_groups(groups: Path, cgroups: Path) -> Iterator[int | None]:
    """Bytes left to the process's control group and to each one around it (versions 2 and 1); None where a
    group has no limit.
    """
    for line in _lines(groups):
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            root, names = cgroups, ("memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
            names = (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ("total_inactive_file", "total_active_file"),
            )
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for depth in range(len(parts) + 1):
            yield _left(root.joinpath(*parts[:depth]), *names)


def _left(group: Path, limit: str, usage: str, reclaimable: Sequence[str]) -> int | None:
    most, used = _number(group / limit), _number(group / usage)
    if most is None or used is None:
        return None
    fields = dict(line.split(" ", 1) for line in _lines(group / "memory.stat") if " " in line)
    files = sum(int(value) for name in reclaimable if (value := fields.get(name, "")).isdigit())
    return max(0, most - max(0, used - files))


def resident_memory() -> dict[str, int]:
    """Bytes resident now, "anonymous" and "file-backed"; empty where the system does not tell."""
    sizes = _sizes(_STATUS)
    names = {"RssAnon": "anonymous", "RssFile": "file-backed"}
    return {name: sizes[field] for field, name in names.items() if field in sizes}


def peak_rss_bytes() -> int:
    """Peak resident memory of this process, file-backed pages included; 0 where the system does not tell."""
    # /proc comes first: getrusage may also count the program that started this one.
    peak = _sizes(_STATUS).get("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # no such module on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _sizes(path: Path) -> dict[str, int]:
    """Bytes of the fields of a /proc file that are stated in kB."""
    found: dict[str, int] = {}
    for line in _lines(path):
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None
