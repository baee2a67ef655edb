"""Processors, cores and memory, read from the system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.doctor import explain
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
    ("text", "features", "said"),
    [
        ("model name : Xeon\nflags\t\t: fpu avx2 avx512_vnni\n", ("VNNI",), "int8 and int4 are fast"),
        ("flags : fpu avx2\n", (), "save memory rather than time"),
        ("processor : 0\nFeatures : fp asimd asimdhp asimddp i8mm\n", ("dotprod", "i8mm", "fp16"), "fast"),
        ("processor : 0\nFeatures : fp asimd crc32\n", (), "save memory"),  # Cortex-A72
        ("processor : 0\n", None, "not told"),
    ],
)
def test_what_the_processor_can_do(text: str, features: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    processor = Processor.detect(tmp_path / "cpuinfo")
    assert processor.features == features
    assert said in explain(processor)


def test_a_machine_without_cpuinfo(tmp_path: Path) -> None:
    assert Processor.detect(tmp_path / "absent").features is None
