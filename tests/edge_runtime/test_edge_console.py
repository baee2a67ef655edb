"""What a terminal sees, and how many threads a device gets."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from edge_runtime.console import TokenPrinter, peak_rss_bytes
from edge_runtime.forced import Source
from edge_runtime.threads import performance_cores


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_from_elsewhere_cannot_command_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        printer = TokenPrinter(out, colour=False)
        printer.write("a\x1b[2J\x9b\tb\n", Source.ANCHOR)
        printer.close()
    assert terminal.getvalue() == "a\ufffd[2J\ufffd\tb\n\n"
    assert pipe.getvalue() == "a\x1b[2J\x9b\tb\n"


def test_a_colour_starts_where_the_source_changes() -> None:
    out = Terminal()
    printer = TokenPrinter(out, colour=True)
    for text, source in (("a", Source.ANCHOR), ("b", Source.ANCHOR), ("", Source.FILL), ("c", Source.FILL)):
        printer.write(text, source)
    printer.close()
    assert out.getvalue() == "\x1b[36mab\x1b[33mc\x1b[0m\n"


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
