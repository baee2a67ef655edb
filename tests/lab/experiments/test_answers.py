"""Experiment `answers` on the shipped model, with texts of its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main
from lab.answers.read import Text, sources, texts_of
from lab.experiments import answers
from lab.store import Store
from tests.shipped import TINY_BUNDLE


def test_the_texts_are_there_and_no_two_have_one_name() -> None:
    assert {"dream-7b", "gsm8k", "qwen2.5-coder-0.5b"} <= {*sources()}
    ids = [each.id for source in sources() for each in texts_of(source)]
    assert len(ids) == len({*ids})


def test_every_text_is_coded_given_back_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {
        "people": [Text("people:1", "Which river?", "The river Arine.")],
        "one": [Text("one:1", "Where?", "B. Torden."), Text("one:2", "", "Bread.")],
        "tiny": [Text("tiny:1", "Which river?", "Arine.")],
    }
    monkeypatch.setattr(answers, "sources", lambda: list(written))
    monkeypatch.setattr(answers, "texts_of", written.__getitem__)
    monkeypatch.setattr(answers, "WRITTEN", "people")
    line = [
        "run",
        "answers",
        "--decoded",
        "1",
        "--edge",
        str(TINY_BUNDLE),
        "--threads",
        "1",
        "-o",
        str(tmp_path),
    ]
    assert main(line) == 0
    records = Store(tmp_path, answers_settings(tmp_path)).records("answers")
    assert {*records} == {"people:1", "one:1", "one:2"}, "nothing of the device's own model"
    for record in records.values():
        sizes = record["bytes"]
        assert 4 < sizes["predictive"] < 60
        assert (record["passes"] or 1) <= record["tokens"] + 2
        assert ("decode" in record["seconds"]) == (record["id"] != "one:2")
        assert {"raw", "gzip", "zstd", "zstd-dictionary", "compact"} <= sizes.keys()
        if "ideal" in sizes:
            assert 0 < sizes["ideal"] <= sizes["predictive"]
    bytes_, seconds = answers.tables(list(records.values()), answers.About())
    assert [row["source"] for row in bytes_.rows] == ["people", "one"]
    assert [row["link"] for row in seconds.rows] == list(answers.LINKS)
    slow, fast = seconds.rows[0], seconds.rows[-1]
    for way in ("text, whole", "ours, whole"):
        assert slow[way] > fast[way]  # type: ignore[operator]
    assert main(line) == 0
    assert main([*line, "--prompts", "1"]) == 2, "another subset has a folder of its own"


def answers_settings(folder: Path) -> dict[str, object]:
    import json

    found: dict[str, object] = json.loads((folder / "settings.json").read_text())
    return found
