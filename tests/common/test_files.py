"""Files read whole, within bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import InputError
from common.files import read_bounded


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_file_is_read_whole_or_refused(size: int, tmp_path: Path) -> None:
    path, data = tmp_path / "file", bytes(range(256)) * (size // 256 + 1)
    path.write_bytes(data[:size])
    assert read_bounded(path, size) == data[:size]
    if size:
        with pytest.raises(InputError):
            read_bounded(path, size - 1)


def test_one_end_of_what_is_typed_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal is asked no more behind the end of its input: it would wait for another."""
    parts = iter([b"hello"])
    typed = SimpleNamespace(read=lambda size: next(parts))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=typed))
    assert read_bounded("-", 1 << 16) == b"hello"
