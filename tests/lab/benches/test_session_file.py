"""The benchmark of a session's file: what it saves is the text that is not read again."""

from __future__ import annotations

from pathlib import Path

from lab.benches.session_file import times
from tests.edge_runtime.test_session import real


def test_the_file_has_the_cache_of_the_whole_text(tmp_path: Path) -> None:
    edge = real()
    rows = times(edge, tmp_path / "talk", turns=2, repeat=1, tokens=6)
    assert [row["turns"] for row in rows] == [1, 2]
    for row in rows:
        size = edge.engine.cache_bytes(1)  # type: ignore[attr-defined]
        assert size * (int(row["tokens"]) - 12) < 1e6 * float(row["MB"]) < size * int(row["tokens"]) + 4096  # type: ignore[arg-type]
        assert row["least"] <= row["ratio"] <= row["most"]  # type: ignore[operator]
