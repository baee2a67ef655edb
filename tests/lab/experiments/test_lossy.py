"""Experiment `lossy` on the shipped model."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main
from lab.answers.read import Text
from lab.experiments import lossy
from lab.experiments.answers import About
from tests.lab.experiments.test_answers import records_of
from tests.shipped import TINY_BUNDLE


def test_parts_take_their_share_and_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "The river of Torden is the Arine. Its mayor is Belley. People bake bread there and eat cheese."
    written = {
        lossy.SOURCE: [Text("one:1", "Tell me about Torden.", long), Text("one:2", "Where?", "There.")],
        f"short/{lossy.SOURCE}": [Text("short:1", "Tell me about Torden.", "The Arine.")],
    }
    monkeypatch.setattr(lossy, "texts_of", written.__getitem__)
    line = ["run", "lossy", "--edge", str(TINY_BUNDLE), "--threads", "1", "-o", str(tmp_path)]
    assert main(line) == 0
    records = records_of(tmp_path, "lossy")
    assert {*records} == {"one:1"}, "only what has a shorter answer"
    (table,) = lossy.tables(list(records.values()), About())
    shown = {(row["share"], row["sent"]): row for row in table.rows}
    assert len(shown) == 2 + 2 * len(lossy.SHARES)
    for share in lossy.SHARES:
        anchors, prefix = (shown[f"{share:g}", name] for name in (lossy.ANCHORS, lossy.PREFIX))
        assert 0 < float(prefix["of the whole"]) <= float(anchors["of the whole"]) <= 1  # type: ignore[arg-type]
