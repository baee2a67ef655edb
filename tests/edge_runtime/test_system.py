"""Processors, cores and memory, read from the system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.system import (
    Processor,
    available_memory,
    peak_rss_bytes,
    performance_cores,
    processor_signature,
    resident_memory,
)


def test_memory_is_told_in_bytes() -> None:
    resident = resident_memory()
    if not resident:
        pytest.skip("this system does not tell")
    assert set(resident) == {"anonymous", "file-backed"}
    assert 1 << 20 < sum(resident.values()) <= peak_rss_bytes()
    available = available_memory()
    assert available is not None
    assert available > 1 << 20


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("0::/\n", {}, 1024),  # no limit: what the machine has
        ("0::/\n", {"memory.max": "max", "memory.current": "5"}, 1024),
        ("0::/\n", {"memory.max": "900", "memory.current": "500", "memory.stat": "anon 1\n"}, 400),
        (  # version 2: the tighter of a group and the one around it; pages of files can be dropped
            "0::/outer/inner\n",
            {
                "outer/memory.max": "800",
                "outer/memory.current": "600",
                "outer/memory.stat": "inactive_file 100\nactive_file 50\nanon 450\n",
                "outer/inner/memory.max": "700",
                "outer/inner/memory.current": "100",
            },
            350,
        ),
        (  # version 1
            "3:cpu:/\n4:memory:/job\n0::/\n",
            {
                "memory/job/memory.limit_in_bytes": "600",
                "memory/job/memory.usage_in_bytes": "300",
                "memory/job/memory.stat": "inactive_file 9\ntotal_inactive_file 200\n",
            },
            500,
        ),
        ("0::/\n", {"memory.max": "100", "memory.current": "300"}, 0),  # over its limit
        ("0::/\n", {"memory.max": "5000", "memory.current": "300"}, 1024),
    ],
)
def test_a_container_may_leave_less_than_the_machine(
    groups: str, files: dict[str, str], left: int, tmp_path: Path
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 4 kB\nMemAvailable:    1 kB\n")
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "cgroups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + ("" if text.endswith("\n") else "\n"))
    found = available_memory(tmp_path / "meminfo", tmp_path / "groups", tmp_path / "cgroups")
    assert found == left
    assert available_memory(tmp_path / "no", tmp_path / "no", tmp_path / "no") is None


def test_the_signature_of_a_processor_is_stable() -> None:
    assert processor_signature() == processor_signature()
    assert processor_signature().count("\n") >= 2


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_rss_bytes()
    block = b"x" * (64 << 20)
    assert peak_rss_bytes() > before // 2 + len(block) // 2
    assert before > 10_000_000


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system does not tell which cores it grants"
)
def test_one_thread_for_each_fast_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    def core(cpu: int, capacity: int | None, siblings: str | None) -> None:
        folder = tmp_path / f"cpu{cpu}"
        (folder / "topology").mkdir(parents=True, exist_ok=True)
        if capacity is not None:
            (folder / "cpu_capacity").write_text(f"{capacity}\n")
        if siblings is not None:
            (folder / "topology" / "thread_siblings_list").write_text(siblings + "\n")

    assert performance_cores(tmp_path) == 8  # nothing told: every logical core
    for cpu in range(8):  # a desktop processor, two threads a core
        core(cpu, None, f"{cpu % 4},{cpu % 4 + 4}")
    assert performance_cores(tmp_path) == 4
    for cpu in range(8):  # a phone: four slow cores, three big, one prime
        core(cpu, [240, 240, 240, 240, 870, 870, 870, 1024][cpu], str(cpu))
    assert performance_cores(tmp_path) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert performance_cores(tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("model name : Xeon\nflags\t\t: fpu avx2 avx512_vnni\n", ("VNNI",)),
        ("flags : fpu avx2\n", ()),
        ("processor : 0\nFeatures : fp asimd asimdhp asimddp i8mm\n", ("dotprod", "i8mm", "fp16")),
        ("processor : 0\n", None),
    ],
)
def test_what_the_processor_can_do(text: str, features: Any, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    assert Processor.detect(tmp_path / "cpuinfo").features == features


def test_a_machine_without_cpuinfo(tmp_path: Path) -> None:
    assert Processor.detect(tmp_path / "absent").features is None
